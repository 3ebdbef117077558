"""Figures drawn into files, several at a time."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial

from anchorscope.extract.axes import Headline
from anchorscope.files.logs import progress
from anchorscope.files.processes import run_apart

Files = dict[str, list[str]]  # of each kind of figure, by its name; `_column` behind it: as wide as a column


@dataclass(frozen=True)
class Source:
    """What all figures of a set are drawn from: the files of the tables, and what the figures show."""

    tables: dict[str, str]  # file by name
    models: dict[str, str]  # title by name
    datasets: dict[str, str]
    headline: Headline
    note: str
    style: str  # a file


def draw_all(files: Files, source: Source, processes: int) -> None:
    """Draw every figure, in several processes that run this module."""
    count = min(processes, len(files))
    shares = [dict(list(files.items())[number::count]) for number in range(count)]
    with ThreadPoolExecutor(count) as threads:
        given = (json.dumps([share, asdict(source)]).encode() for share in shares)
        for _ in progress(threads.map(partial(run_apart, __name__), given), count, "drawing"):
            pass


def draw(files: Files, source: Source) -> None:
    """Draw some figures, one after another."""
    # Seconds to import, which the process that starts the others need not wait for.
    from anchorscope.draw.figures import DRAW
    from anchorscope.draw.panels import View, read_style, save
    from anchorscope.files.frames import read_frame

    tables = {name: read_frame(file) for name, file in source.tables.items()}
    for name, paths in files.items():
        style = read_style(source.style, column=name.endswith("_column"))
        view = View(source.models, source.datasets, headline=source.headline, note=source.note, style=style)
        figure = DRAW[name.removesuffix("_column")](tables, view)
        for path in paths:
            save(figure, path, style)


if __name__ == "__main__":
    files, source = json.load(sys.stdin)
    headline = Headline(**source.pop("headline"))
    draw(files, Source(headline=headline, **source))
