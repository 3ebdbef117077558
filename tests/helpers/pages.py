"""The project's pages: their blocks, links and commands."""

import re
from pathlib import Path

from small_things import ROOT

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "results/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
FENCED = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.M | re.S)
SHELLS = ("", "bash", "sh", "shell", "console")
PROGRAMS = ("anchorscope", "snakemake", "python", "make", "pytest")


def blocks(page: Path, kind: str) -> list[str]:
    return [text for name, text in FENCED.findall(page.read_text(encoding="utf-8")) if name == kind]


def without_blocks(page: Path) -> str:
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def commands(page: Path) -> list[str]:
    """Every line of a shell's block, less its comment, and every command in the text that one of our programs runs."""
    lines = [line for kind in SHELLS for block in blocks(page, kind) for line in block.splitlines()]
    quoted = [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", without_blocks(page))]
    found = [re.sub(r"\s+#\s.*", "", line).strip().removeprefix("$ ") for line in lines]
    found += [code for code in quoted if code.startswith(tuple(f"{program} " for program in PROGRAMS))]
    return [command for command in found if command]


def anchor_of(heading: str) -> str:
    """What a link names behind its #, as the web pages of repositories spell it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    return {anchor_of(heading) for heading in re.findall(r"^#+ +(.*)$", without_blocks(page), re.M)}


def links(page: Path) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", without_blocks(page))
