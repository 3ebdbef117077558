"""Draws every kind of figure of a run into files, several at a time."""

import json
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial

from anchorscope.extract.axes import Headline
from anchorscope.files.logs import progress
from anchorscope.files.processes import run_apart

Files = Mapping[str, list[str]]  # of each figure; a name that ends in `_column` is as wide as a column


@dataclass(frozen=True)
class Source:
    """What all figures are drawn from: the files of the tables, and what the figures show."""

    tables: dict[str, str]  # file by name
    models: dict[str, str]  # title by name
    datasets: dict[str, str]
    headline: dict[str, str]
    note: str
    style: str  # a file


def draw_figures(files: Files, source: Source, processes: int) -> None:
    """Draw every figure, in several processes that run this module."""
    count = min(processes, len(files))
    shares = [dict(list(files.items())[number::count]) for number in range(count)]
    inputs = [json.dumps([share, asdict(source)]).encode() for share in shares]
    with ThreadPoolExecutor(count) as threads:
        for _ in progress(threads.map(partial(run_apart, __name__), inputs), count, "drawing"):
            pass


def draw_share(files: Files, source: Source) -> None:
    """Draw some figures, one after another."""
    # Seconds to import, which the process that starts the others need not wait for.
    from anchorscope.draw.facets import save
    from anchorscope.draw.functions import draw_figure
    from anchorscope.draw.style import read_style
    from anchorscope.draw.view import View
    from anchorscope.files.frames import read_frame

    tables = {name: read_frame(file) for name, file in source.tables.items()}
    for name, paths in files.items():
        style = read_style(source.style, column=name.endswith("_column"))
        view = View(source.models, source.datasets, Headline(**source.headline), source.note, style)
        figure = draw_figure(name.removesuffix("_column"), tables, view)
        for path in paths:
            save(figure, path, style)


if __name__ == "__main__":
    files, source = json.load(sys.stdin)
    draw_share(files, Source(**source))
