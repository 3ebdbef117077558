"""The drawn figures on the report, small enough for one page, and links to the files of a run."""

import base64
import io
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup
from PIL import Image

from anchorscope.draw.registry import KINDS, FigureKind
from anchorscope.report.page import render
from anchorscope.report.pictures import small_svg, svg_uri

LARGEST_SVG = 400_000  # characters of an SVG's data URI
WIDTH = 1400  # pixels: sharp at the width of the page, a third of the bytes of the file
QUALITY = 85  # of 100


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
    narrow: str  # another for narrow screens, or nothing
    files: list[Link]


def figure_svg(figure: Path) -> str:
    """A figure's SVG, which knows a dark screen, as a data URI; nothing where that is too large."""
    uri = svg_uri(small_svg(figure.with_suffix(".svg").read_text(encoding="utf-8")))
    return uri if len(uri) <= LARGEST_SVG else ""


def png_uri(png: bytes) -> str:
    """A figure's PNG made smaller, as a data URI. A palette would tint grids and turn a band into another's colour."""
    with Image.open(io.BytesIO(png)) as image:
        small = image.convert("RGB")
        small.thumbnail((WIDTH, 10 * WIDTH), Image.Resampling.LANCZOS)
        buffer = io.BytesIO()
        small.save(buffer, "webp", quality=QUALITY, method=6)
    return f"data:image/webp;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def by_set(files: Iterable[str]) -> dict[str, list[Path]]:
    """Figures by the set of models that they show, each by its path without width and format."""
    figures = dict.fromkeys(Path(file).with_suffix("") for file in files)
    wide = (figure for figure in figures if figure.name in KINDS)
    return {name: list(some) for name, some in groupby(wide, lambda figure: figure.parent.name)}


def make_pictures(
    figures: Mapping[str, Iterable[Path]], titles: Mapping[str, str], page: Path | str
) -> dict[str, list[Picture]]:
    """The pictures of each set of models, from `by_set`; `titles` name the models of a set."""
    return {name: [_picture(figure, titles[name], page) for figure in some] for name, some in figures.items()}


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


def _picture(wide: Path, models: str, page: Path | str) -> Picture:
    narrow = wide.with_name(f"{wide.name}_column")
    svg = figure_svg(wide)
    files = [figure.with_suffix(end) for figure in (wide, narrow) for end in (".pdf", ".svg", ".png")]
    return Picture(
        kind=KINDS[wide.name],
        models=models,
        source=svg or png_uri(wide.with_suffix(".png").read_bytes()),
        narrow=svg and figure_svg(narrow),
        files=[Link.to(file, page) for file in files],
    )


def files_section(paths: Iterable[str], page: Path | str) -> Markup:
    """Links to the files of a run, by folder."""

    def folder(path: str) -> str:
        return Path(os.path.relpath(path, Path(page).parent)).parent.as_posix()

    by_folder = groupby(sorted(paths, key=lambda path: (folder(path), path)), folder)
    return render("files.html", folders=[(name, [Link.to(path, page) for path in some]) for name, some in by_folder])
