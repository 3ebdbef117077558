"""What all figures share: their style, panels, curves with bands, one legend below, and how they are saved."""

import logging
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from logging.handlers import BufferingHandler
from pathlib import Path
from types import MappingProxyType
from typing import Literal, cast

import matplotlib
import matplotlib.style
import numpy as np
import polars as pl
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from anchorscope.files.atomic import atomic
from anchorscope.files.faults import fault_of_file, shortened

BUNDLED_STYLE = Path(__file__).resolve().parents[2] / "resources" / "figures.mplstyle"
FEW = 20  # groups of fewer examples are drawn faint, and so are layers whose probe is no better than chance
FAINT = 0.25
MARKED = 8  # about how many layers of a curve have a marker
COLUMN = 3.3  # inches: one column of a two-column page
COLUMN_SCALE = 0.8  # type and lines are that much smaller there
NARROWEST = 1.05  # inches per panel; the figure becomes wider where that takes more room
FIXED = {
    "svg.fonttype": "none",  # text stays text
    "pdf.fonttype": 42,
    "svg.hashsalt": "anchorscope",  # the same figure gives the same file
    "text.parse_math": False,  # dollar signs in a title do not make it a formula
    "figure.autolayout": False,  # `sheet` lays the figure out
    "figure.constrained_layout.use": False,
}
LOOKS = ("axes.", "figure.", "font.", "grid.", "legend.", "lines.", "patch.", "text.", "xtick.", "ytick.")

Share = bool | Literal["row", "col"]  # which panels share an axis
Size = Literal["axes.titlesize", "axes.labelsize", "legend.fontsize", "figure.titlesize"]  # keys of a style


@dataclass(frozen=True)
class Style:
    """A style file at the width of a page or of a column."""

    params: dict  # of matplotlib
    looks: list[dict]  # colour, line and marker of each series
    width: float  # inches
    height: float  # inches of one row of panels


def changed_settings() -> dict:
    """What the user has set otherwise than matplotlib does, as far as it is about looks."""
    now, usual = matplotlib.rcParams, matplotlib.rcParamsDefault
    return {name: now[name] for name in usual if name.startswith(LOOKS) and now[name] != usual[name]}


def read_style(path: Path | str | None = None, column: bool = False, changed: Mapping = MappingProxyType({})) -> Style:
    """Read a style file, or one of matplotlib's styles by its name; without `path`, the bundled one, with changes."""
    if path is None:
        params = {**_read_params(BUNDLED_STYLE), **changed}
    elif str(path) in matplotlib.style.library:
        params = {**_read_params(BUNDLED_STYLE), **matplotlib.style.library[str(path)]}
    else:
        if fault := fault_of_file(path):
            raise ValueError(f"{shortened(path)} {fault}, and matplotlib has no style of that name.")
        params = _read_params(Path(path))
    params = {**sns.axes_style("whitegrid"), **params, **FIXED}
    with matplotlib.rc_context(params):
        now = matplotlib.rcParams
        looks = [{"linestyle": "-", "marker": "", **look} for look in now["axes.prop_cycle"]]
        width, height = now["figure.figsize"]
        sizes = {name: now[name] for name in ("font.size", "lines.linewidth", "lines.markersize")}
    if not column:
        return Style(params=params, looks=looks, width=width, height=height)
    scaled = {name: COLUMN_SCALE * size for name, size in sizes.items()}
    return Style(params={**params, **scaled}, looks=looks, width=COLUMN, height=COLUMN_SCALE * height)


def _read_params(path: Path) -> dict:
    # Matplotlib only logs what it finds wrong with a style file.
    complaints, logger = BufferingHandler(capacity=10_000), logging.getLogger("matplotlib")
    complaints.setLevel(logging.WARNING)
    logger.addHandler(complaints)
    try:
        params = dict(matplotlib.rc_params_from_file(path, use_default_template=False))
    except UnicodeDecodeError:
        params = {}
    finally:
        logger.removeHandler(complaints)
    if complaints.buffer:
        first = complaints.buffer[0].getMessage().strip().splitlines()[0]
        reason = first.replace(f" in file {path!r}", "").replace(f" in file {path}", "")
        raise ValueError(f"{path} is not a style that matplotlib can use: {reason.rstrip('.')}.")
    return params


@contextmanager
def sheet(
    style: Style,
    columns: int,
    *,
    rows: int = 1,
    first_height: float = 1.0,
    row_height: float = 1.0,
    sharex: Share = False,
    sharey: Share = False,
) -> Iterator[tuple[Figure, np.ndarray]]:
    """A figure and its panels [rows, columns], to be drawn on in the style.

    The first row is `first_height` times as high as the style says, each other one `row_height` times.
    """
    with matplotlib.rc_context(style.params):
        size = (max(style.width, NARROWEST * columns), style.height * (first_height + row_height * (rows - 1)))
        figure = Figure(figsize=size, dpi=matplotlib.rcParams["savefig.dpi"], layout="constrained")
        yield figure, figure.subplots(rows, columns, squeeze=False, sharex=sharex, sharey=sharey)
        figure.draw_without_rendering()
        figure.set_layout_engine(None)  # the layout is final, whatever the format; "none" would draw every file twice


def looks(style: Style, count: int) -> list[dict]:
    """The looks of the first `count` series, over again where the style has fewer."""
    return list(islice(cycle(style.looks), count))


def draw_curve(panel: Axes, rows: pl.DataFrame, value: str, *, ends: tuple[str, str], look: dict, label: str) -> None:
    """A line with its band, faint where `rows` are not `sure`; each curve's markers begin one layer later."""
    rows = rows.sort("layer")
    layer, sure = rows["layer"].to_numpy(), rows["sure"].to_numpy()
    middle, low, high = (rows[name].cast(pl.Float64).to_numpy().astype(float) for name in (value, *ends))
    step = max(1, len(layer) // MARKED)
    others = sum(not str(line.get_label()).startswith("_") for line in panel.get_lines())
    marks = slice(others % step, None, step)
    panel.plot(layer, middle, markevery=marks, **look, alpha=FAINT)
    panel.plot(layer, np.where(sure, middle, np.nan), markevery=marks, **look, label=label)
    panel.fill_between(layer, low, high, where=sure, color=look["color"], alpha=0.15, linewidth=0)


def name_panels(line: Sequence[Axes], titles: Iterable[str]) -> None:
    """Titles over a row of panels, folded to their width."""
    room = 0.85 * _figure(line[0]).get_figwidth() / len(line)  # the rest is for the axes' numbers
    for panel, title in zip(line, titles, strict=True):
        panel.set_title(_folded(title, room, "axes.titlesize"))


def label_rows(panel: Axes, text: str, rows: int) -> None:
    """The label of a row of panels, folded to its height."""
    panel.set_ylabel(_folded(text, 0.7 * _figure(panel).get_figheight() / rows, "axes.labelsize"))


def _figure(panel: Axes) -> Figure:
    return cast(Figure, panel.figure)  # no panel here is in a subfigure


def count_layers(panels: np.ndarray) -> None:
    """Put layers, as whole numbers, on the x axis."""
    room = panels.flat[0].figure.get_figwidth() / panels.shape[1]  # inches of a panel
    for panel in panels.flat:
        panel.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=max(3, int(2 * room))))


def say_where_nothing_is(panels: np.ndarray, why: str) -> None:
    """Say on panels without a curve why there is none."""
    for panel in panels.flat:
        if not any(np.isfinite(line.get_ydata()).any() for line in panel.get_lines()[:-1]) and not panel.patches:
            panel.text(0.5, 0.5, why, transform=panel.transAxes, ha="center", color="0.5")


def add_legend(figure: Figure, together: int, last: str = "") -> None:
    """One legend below all panels, `last` after all others; every `together` entries share a column."""
    entries = [entry for panel in figure.axes for entry in zip(*panel.get_legend_handles_labels(), strict=True)]
    shown = {label: handle for handle, label in sorted(entries, key=lambda entry: entry[1] == last)}
    if not shown:
        return
    shown = {_folded(label, 0.7 * figure.get_figwidth(), "legend.fontsize"): handle for label, handle in shown.items()}
    longest = max(len(line) for label in shown for line in label.splitlines())
    widest = (longest + 7) * _letter("legend.fontsize")  # with the line before it
    groups = -(-len(shown) // together)
    deep = -(-groups // max(1, int(figure.get_figwidth() / widest)))  # groups in a column
    columns = -(-groups // deep)
    missing = columns * deep * together - len(shown)
    handles = [*shown.values(), *[Patch(visible=False)] * missing]
    figure.legend(
        handles,
        [*shown, *[""] * missing],
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        columnspacing=1.0,
        handlelength=3.0,
    )


def add_heading(figure: Figure, *lines: str) -> None:
    """Small lines above the panels."""
    parts = [line for text in lines for line in text.splitlines()]
    folded = [_folded(line, figure.get_figwidth(), "figure.titlesize") for line in parts]
    figure.suptitle("\n".join(folded), color="0.35")


def _letter(size: Size) -> float:
    """The width in inches of a letter in one of the style's sizes, or a little more."""
    points = FontProperties(size=matplotlib.rcParams[size]).get_size_in_points()
    return 0.57 * points / 72


def _folded(text: str, inches: float, size: Size) -> str:
    """A text in lines of at most that width."""
    letters = max(1, int(inches / _letter(size)))
    return "\n".join(textwrap.wrap(text, letters))


def save(figure: Figure, path: Path | str, style: Style) -> None:
    """Write a figure whole or not at all, in the format of the path's suffix; the same figure gives the same bytes."""
    suffix = Path(path).suffix.removeprefix(".")
    undated = {"png": {"Software": None}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
    with matplotlib.rc_context(style.params), atomic(path) as target:
        figure.savefig(target, format=suffix, metadata=undated[suffix])
