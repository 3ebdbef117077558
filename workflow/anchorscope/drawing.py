"""Figures as files, several at a time: each by a process of its own."""

import multiprocessing
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache

import polars as pl

from anchorscope.figures import KINDS, View
from anchorscope.frames import read_frame
from anchorscope.logs import progress
from anchorscope.panels import read_style, save


@dataclass(frozen=True)
class Sheet:
    """One figure to draw, at one width, into a file for each format."""

    kind: str
    column: bool  # as wide as a column, and not as a page
    files: tuple[str, ...]


@dataclass(frozen=True)
class Source:
    """What all figures of a set are drawn from: files of tables, and what of them is shown."""

    tables: tuple[tuple[str, str], ...]  # name and file
    models: tuple[tuple[str, str], ...]  # name and title
    datasets: tuple[tuple[str, str], ...]
    component: str
    position: str
    note: str
    style: str  # a file


def draw_all(sheets: list[Sheet], source: Source, processes: int) -> None:
    """Draw every sheet."""
    count = min(processes, len(sheets))
    if count <= 1:
        drawn: Iterable = (draw(sheet, source) for sheet in sheets)
        _wait(drawn, len(sheets))
        return
    # Not a plain fork: the threads of the data-frame library would be missing in the copy.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with ProcessPoolExecutor(count, context) as pool:
        _wait(pool.map(draw, sheets, [source] * len(sheets)), len(sheets))


def _wait(drawn: Iterable, count: int) -> None:
    for _ in progress(drawn, count, "drawing"):
        pass


def draw(sheet: Sheet, source: Source) -> None:
    style = read_style(source.style, column=sheet.column)
    view = View(dict(source.models), dict(source.datasets), source.component, source.position, source.note, style)
    figure = KINDS[sheet.kind](_read(source.tables), view)
    for file in sheet.files:
        save(figure, file, style)


@cache
def _read(tables: tuple[tuple[str, str], ...]) -> Mapping[str, pl.DataFrame]:
    """Once in each process."""
    return {name: read_frame(file) for name, file in tables}
