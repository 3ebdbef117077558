"""What the site shows besides docs/*.md, without a copy of it in the repository.

Pages that lie elsewhere (the README is the home page), notebooks, a page for the Python functions, and every file or
folder that a page links to. A link is written for the repository; here it is turned to where the site shows that file.
"""

import ast
import json
import os
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pymdownx.slugs import slugify

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
NOTEBOOKS = "notebooks/"
PYTHON = "python/"  # python/{module}.md in the navigation is a page about that module
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s#]+)")
UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n"
ELSEWHERE: dict[Path, str] = {}  # pages that lie outside docs, and their names in the site
SOURCES: dict[str, Path] = {}  # of each page in the site


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put each notebook where the navigation names their folder; without any, leave the entry out."""
    ELSEWHERE.update({ROOT / source: uri for uri, source in config.extra["elsewhere"].items()})
    config.mdx_configs["toc"]["slugify"] = slugify(case="lower")  # headings are named as code hosts name them
    found = [f"{NOTEBOOKS}{file.stem}.md" for file in sorted((DOCS / NOTEBOOKS).glob("*.ipynb"))]
    for section in config.nav or []:
        for entries in section.values():
            entries[:] = [one for entry in entries for one in (found if NOTEBOOKS in entry.values() else [entry])]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie elsewhere, and whatever pages link to, and whatever that links to."""
    SOURCES.clear()
    waiting = [*ELSEWHERE, *DOCS.glob("*.md"), *(DOCS / NOTEBOOKS).glob("*.ipynb")]
    for path in waiting:  # which grows
        uri = uri_of(path)
        if uri in SOURCES or not uri.endswith(".md"):
            continue
        SOURCES[uri], text = path, text_of(path)
        if files.get_file_from_path(uri) is None:
            files.append(File.generated(config, uri, content=text))
        waiting += [target for link in LINK.findall(text) if (target := target_of(link, path)).exists()]
    for uri in re.findall(rf"{PYTHON}[\w.]+\.md", str(config.nav)):
        files.append(File.generated(config, uri, content=module_text(uri.removeprefix(PYTHON).removesuffix(".md"))))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links of the repository into links of the site. One that leads nowhere stays, and the build fails."""
    source = SOURCES.get(page.file.src_uri)
    if source is None:
        return markdown

    def turned(link: re.Match) -> str:
        target = target_of(link[1], source)
        return os.path.relpath(uri_of(target), Path(page.file.src_uri).parent) if target.exists() else link[1]

    return LINK.sub(turned, markdown)


def module_text(module: str) -> str:
    """A page about all that a module gives on first use, which its `HOMES` lists."""
    code = ast.parse((ROOT / "workflow" / module.replace(".", "/") / "__init__.py").read_text(encoding="utf-8"))
    (homes,) = (
        node.value for node in code.body if isinstance(node, ast.Assign) and "HOMES" in ast.unparse(node.targets)
    )
    names = ", ".join(ast.literal_eval(homes))
    return f"# `{module}`\n\n::: {module}\n    options:\n      members: [{names}]\n"


def target_of(link: str, source: Path) -> Path:
    """The file or folder of the repository that a link leads to."""
    folder = source if source.is_dir() else source.parent
    return Path(os.path.normpath(folder / link))


def uri_of(path: Path) -> str:
    """Where the site has a file or folder of the repository."""
    if path in ELSEWHERE:
        return ELSEWHERE[path]
    if path.is_file() and path.is_relative_to(DOCS):
        return re.sub(r"\.ipynb$", ".md", path.relative_to(DOCS).as_posix())
    return f"files/{path.relative_to(ROOT).as_posix()}.md"


def text_of(path: Path) -> str:
    """A page that shows a file or a folder."""
    title = f"# `{path.relative_to(ROOT).as_posix()}`\n\n"
    if path.is_dir():
        names = sorted(file.name for file in path.iterdir() if file.name != "__pycache__")
        return UNSEARCHED + title + "\n".join(f"- [{name}]({name})" for name in names)
    if path.suffix == ".md":
        return path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        return notebook_text(path)
    return UNSEARCHED + title + fenced(path.read_text(encoding="utf-8"), path.suffix.removeprefix("."))


def notebook_text(path: Path) -> str:
    """A notebook's cells and what they gave, as they stand in the file; nothing is run."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    title, *rest = [part for cell in cells for part in cell_parts(cell)]
    return "\n\n".join([title, f'<a href="{path.name}" download>Take this notebook along</a>', *rest]) + "\n"


def cell_parts(cell: dict[str, Any]) -> list[str]:
    """The Markdown of a cell, then that of its outputs."""
    source = "".join(cell["source"])
    if cell["cell_type"] != "code":
        return [source]
    return [fenced(source, "python"), *map(output_text, cell["outputs"])]


def output_text(output: dict[str, Any]) -> str:
    """The richest form of one output: a picture, a table or text."""
    data = output.get("data", {})
    if "image/png" in data:
        picture = "".join(data["image/png"]).replace("\n", "")
        return f'<img alt="Figure of the cell above" src="data:image/png;base64,{picture}">'
    if html := data.get("text/html", data.get("image/svg+xml")):
        # A blank line would end the block.
        return '<div class="output">' + re.sub(r"\n\s*\n", "\n", "".join(html)).strip() + "</div>"
    return fenced("".join(output.get("text", data.get("text/plain", ""))), "text")


def fenced(text: str, language: str) -> str:
    """Text as a block of code, whatever fences are in it."""
    fence = "`" * max(3, 1 + max(map(len, re.findall(r"^`+", text, re.M)), default=0))
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"
