"""Figures as files, several at a time."""

import json
import subprocess
import sys
from dataclasses import asdict, dataclass

from anchorscope.files.logs import progress


@dataclass(frozen=True)
class Sheet:
    """One figure to draw, at one width, into a file for each format."""

    kind: str
    column: bool  # as wide as a column, and not as a page
    files: list[str]


@dataclass(frozen=True)
class Source:
    """What all figures of a set are drawn from: files of tables, and what of them is shown."""

    tables: dict[str, str]  # name and file
    models: dict[str, str]  # name and title
    datasets: dict[str, str]
    component: str
    position: str
    note: str
    style: str  # a file


def draw_all(sheets: list[Sheet], source: Source, processes: int) -> None:
    """Draw every sheet, a share of them in each of several processes that run this module."""
    count = min(processes, len(sheets))
    started = [_start(sheets[number::count], source) for number in range(count)]
    for process in progress(started, count, "drawing"):
        said = process.communicate()[1].strip().splitlines()
        if process.returncode:
            raise RuntimeError(said[-1] if said else "A process that drew figures was killed.")


def _start(sheets: list[Sheet], source: Source) -> subprocess.Popen:
    process = subprocess.Popen(
        [sys.executable, "-m", __spec__.name], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdin.write(json.dumps([[asdict(sheet) for sheet in sheets], asdict(source)]))
    process.stdin.close()
    process.stdin = None  # or `communicate` would write to it
    return process


def draw(sheets: list[Sheet], source: Source) -> None:
    # Seconds to import, which the process that starts the others need not wait for.
    from anchorscope.draw.figures import DRAW, View
    from anchorscope.draw.panels import read_style, save
    from anchorscope.files.frames import read_frame

    tables = {name: read_frame(file) for name, file in source.tables.items()}
    for sheet in sheets:
        style = read_style(source.style, column=sheet.column)
        view = View(source.models, source.datasets, source.component, source.position, source.note, style)
        figure = DRAW[sheet.kind](tables, view)
        for file in sheet.files:
            save(figure, file, style)


if __name__ == "__main__":
    given, shown = json.load(sys.stdin)
    draw([Sheet(**sheet) for sheet in given], Source(**shown))
