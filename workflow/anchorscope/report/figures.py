"""The static figures on the report, small enough for one page, and links to the files of a run."""

import base64
import io
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from html import escape
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

from PIL import Image

from anchorscope.draw.kinds import FIGURE_KINDS

WIDTH = 1400  # pixels: sharp at the width of the page, a third of the bytes of the file
KINDS_BY_NAME = {kind.name: kind for kind in FIGURE_KINDS}


def picture(png: bytes) -> str:
    """A figure's PNG as a smaller one, in a data URI."""
    with Image.open(io.BytesIO(png)) as image:
        small = image.convert("RGB")
        small.thumbnail((WIDTH, 10 * WIDTH), Image.Resampling.LANCZOS)
        buffer = io.BytesIO()
        small.quantize(method=Image.Quantize.MAXCOVERAGE).save(buffer, "png", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def figures_section(figures: Mapping[str, Iterable[Path]], titles: Mapping[str, str], page: Path) -> str:
    """Each set of models with its figures of every kind, from their PNG files; `titles` name the models of a set."""
    parts = []
    with ThreadPoolExecutor() as threads:  # pictures are made smaller outside of Python's lock
        for name, paths in figures.items():
            parts.append(f"<h3>{escape(titles[name])}</h3>")
            parts += threads.map(lambda path, name=name: _figure(Path(path), titles[name], page), paths)
    return "\n".join(parts)


def _figure(path: Path, models: str, page: Path) -> str:
    kind = KINDS_BY_NAME[path.stem]
    files = [
        path.with_name(f"{path.stem}{width}{end}") for width in ("", "_column") for end in (".pdf", ".svg", ".png")
    ]
    links = " ".join(link(file, page, file.name) for file in files)
    alt = escape(f"{kind.caption}. {models}.")
    shown = f"""<figure><img alt="{alt}" src="{picture(path.read_bytes())}">
<figcaption>{escape(kind.caption)}. {links}</figcaption></figure>"""
    if kind.unfolded:
        return shown
    return f"<details><summary>{escape(kind.caption)}</summary>\n{shown}\n</details>"


def link(path: Path | str, page: Path | str, text: str) -> str:
    """A link from the page to another file of the run, wherever the run stands."""
    address = quote(Path(os.path.relpath(path, Path(page).parent)).as_posix())
    return f'<a href="{escape(address)}">{escape(text)}</a>'


def files_section(paths: Iterable[str], page: Path | str) -> str:
    """Links to the files of a run, by the folder that they stand in."""
    folder = Path(page).parent

    def kind(path: str) -> str:
        return Path(os.path.relpath(path, folder)).parent.as_posix()

    parts = []
    for name, some in groupby(sorted(paths, key=lambda path: (kind(path), path)), kind):
        items = "\n".join(f"<li>{link(path, page, Path(path).name)}</li>" for path in some)
        title, unfolded = ("The run", " open") if name == "." else (name, "")
        parts.append(
            f'<details{unfolded}><summary>{escape(title)}</summary>\n<ul class="files">{items}</ul>\n</details>'
        )
    return "\n".join(parts)
