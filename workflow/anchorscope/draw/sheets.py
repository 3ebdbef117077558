"""Figures drawn into files, several at a time."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import IO, cast

from anchorscope.extract.axes import Headline
from anchorscope.files.logs import progress


@dataclass(frozen=True)
class Sheet:
    """One figure to draw, at one width, into one file per format."""

    kind: str
    column: bool  # as wide as a column; else as a page
    files: list[str]


@dataclass(frozen=True)
class Source:
    """What all figures of a set are drawn from: the files of the tables, and what the figures show."""

    tables: dict[str, str]  # file by name
    models: dict[str, str]  # title by name
    datasets: dict[str, str]
    headline: Headline
    note: str
    style: str  # a file


def sheets_of(outputs: Mapping[str, Sequence[str]]) -> list[Sheet]:
    """The sheets behind a job's outputs: the files of each kind at each width, by name."""
    return [
        Sheet(name.removesuffix("_column"), name.endswith("_column"), list(paths)) for name, paths in outputs.items()
    ]


def draw_all(sheets: list[Sheet], source: Source, processes: int) -> None:
    """Draw every sheet, in several processes that run this module."""
    count = min(processes, len(sheets))
    started = [_start(sheets[number::count], source) for number in range(count)]
    for process in progress(started, count, "drawing"):
        messages = process.communicate()[1].strip().splitlines()
        if process.returncode:
            raise RuntimeError(messages[-1] if messages else "A process that drew figures was killed.")


def _start(sheets: list[Sheet], source: Source) -> subprocess.Popen:
    process = subprocess.Popen(
        [sys.executable, "-m", __spec__.name], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with cast(IO[str], process.stdin) as pipe:
        pipe.write(json.dumps([[asdict(sheet) for sheet in sheets], asdict(source)]))
    process.stdin = None  # or `communicate` would write to it
    return process


def draw(sheets: list[Sheet], source: Source) -> None:
    """Draw some sheets, one after another."""
    # Seconds to import, which the process that starts the others need not wait for.
    from anchorscope.draw.figures import DRAW
    from anchorscope.draw.panels import read_style, save
    from anchorscope.draw.views import View
    from anchorscope.files.frames import read_frame

    tables = {name: read_frame(file) for name, file in source.tables.items()}
    for sheet in sheets:
        style = read_style(source.style, column=sheet.column)
        view = View(source.models, source.datasets, headline=source.headline, note=source.note, style=style)
        figure = DRAW[sheet.kind](tables, view)
        for file in sheet.files:
            save(figure, file, style)


if __name__ == "__main__":
    sheets, source = json.load(sys.stdin)
    headline = Headline(**source.pop("headline"))
    draw([Sheet(**sheet) for sheet in sheets], Source(headline=headline, **source))
