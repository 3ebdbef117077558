"""The drawn figures on the report, small enough for one page, and links to the files of a run."""

import base64
import io
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup
from PIL import Image

from anchorscope.draw.kinds import DETECTION_KINDS, FIGURE_KINDS, FigureKind
from anchorscope.report.page import render

WIDTH = 1400  # pixels: sharp at the width of the page, a third of the bytes of the file
QUALITY = 85  # of 100
KINDS_BY_NAME = {kind.name: kind for kind in (*FIGURE_KINDS, *DETECTION_KINDS)}


@dataclass(frozen=True)
class Link:
    """A link from the page to another file of the run, wherever the run stands."""

    address: str
    name: str

    @classmethod
    def to(cls, file: Path | str, page: Path | str) -> "Link":
        address = quote(Path(os.path.relpath(file, Path(page).parent)).as_posix())
        return cls(address, Path(file).name)


@dataclass(frozen=True)
class Picture:
    """One figure of a set of models, as the page shows it."""

    kind: FigureKind
    models: str  # their titles
    source: str  # a data URI
    files: list[Link]


def data_uri(png: bytes) -> str:
    """A figure's PNG made smaller, as a data URI. A palette would tint grids and turn a band into another's colour."""
    with Image.open(io.BytesIO(png)) as image:
        small = image.convert("RGB")
        small.thumbnail((WIDTH, 10 * WIDTH), Image.Resampling.LANCZOS)
        buffer = io.BytesIO()
        small.save(buffer, "webp", quality=QUALITY, method=6)
    return f"data:image/webp;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def by_set(figures: Iterable[str]) -> dict[str, list[str]]:
    """Figures by the set of models that they show."""
    return {name: list(some) for name, some in groupby(figures, lambda path: Path(path).parent.name)}


def make_pictures(
    figures: Mapping[str, Iterable[Path | str]], titles: Mapping[str, str], page: Path | str
) -> dict[str, list[Picture]]:
    """The pictures of each set of models, from the PNG files of its figures; `titles` name the models of a set."""
    with ThreadPoolExecutor() as threads:  # pictures are made smaller outside of Python's lock
        return {
            name: list(threads.map(partial(_picture, models=titles[name], page=page), paths))
            for name, paths in figures.items()
        }


def honest_section(pictures: Iterable[Picture], bottom_line: Mapping[str, str], models: Mapping[str, str]) -> Markup:
    """The honest figure, under what was found of each model and how to read it."""
    sentences = [f"{models[name]}: {sentence}" for name, sentence in bottom_line.items() if name in models]
    shown = [picture for picture in pictures if picture.kind.placement == "honest"]
    return render("honest.html", sentences=sentences, pictures=shown)


def figures_section(pictures: Mapping[str, list[Picture]]) -> Markup:
    """All other pictures, by set of models; those of experiments have sections of their own."""
    others = [
        [picture for picture in of_set if picture.kind.placement in ("open", "folded") and not picture.kind.experiment]
        for of_set in pictures.values()
    ]
    return render("figures.html", sets=[(of_set[0].models, of_set) for of_set in others])


def _picture(path: Path | str, models: str, page: Path | str) -> Picture:
    png = Path(path)
    files = [png.with_name(f"{png.stem}{width}{end}") for width in ("", "_column") for end in (".pdf", ".svg", ".png")]
    return Picture(
        kind=KINDS_BY_NAME[png.stem],
        models=models,
        source=data_uri(png.read_bytes()),
        files=[Link.to(file, page) for file in files],
    )


def files_section(paths: Iterable[str], page: Path | str) -> Markup:
    """Links to the files of a run, by folder."""

    def folder(path: str) -> str:
        return Path(os.path.relpath(path, Path(page).parent)).parent.as_posix()

    by_folder = groupby(sorted(paths, key=lambda path: (folder(path), path)), folder)
    return render("files.html", folders=[(name, [Link.to(path, page) for path in some]) for name, some in by_folder])
