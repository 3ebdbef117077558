"""What all figures share: their looks from a style file, panels, curves with bands, one legend below, and files."""

import logging
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

import matplotlib
import numpy as np
import polars as pl
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from anchorscope.files.atomic import atomic

BUNDLED_STYLE = Path(__file__).resolve().parents[2] / "resources" / "figures.mplstyle"
FEW = 20  # a group of fewer examples is drawn faint, and so is a layer whose probe is no better than chance
FAINT = 0.25
MARKED = 8  # layers of a curve with a marker
COLUMN = 3.3  # inches: one column of a two-column page
COLUMN_SCALE = 0.8  # of type and lines there
NARROWEST = 1.05  # inches of a panel; more panels than there is room for make the figure wider
FIXED = {
    "svg.fonttype": "none",  # text stays text
    "pdf.fonttype": 42,
    "svg.hashsalt": "anchorscope",  # the same figure gives the same file
    "text.parse_math": False,  # a title with dollar signs is no formula
    "figure.autolayout": False,  # `sheet` finds all places itself
    "figure.constrained_layout.use": False,
}


@dataclass(frozen=True)
class Style:
    """A style file at the width of a page or of a column."""

    params: dict  # of matplotlib
    looks: list[dict]  # colour, line and marker of each series
    width: float  # inches
    height: float  # inches of one row of panels


def read_style(path: Path | str | None = None, column: bool = False) -> Style:
    """Read a matplotlib style file; the bundled one without `path`."""
    params = _read_params(Path(path or BUNDLED_STYLE))
    params = {**sns.axes_style("whitegrid"), **params, **FIXED}
    with matplotlib.rc_context(params):
        now = matplotlib.rcParams
        looks = [{"linestyle": "-", "marker": "", **look} for look in now["axes.prop_cycle"]]
        (width, height), sizes = now["figure.figsize"], {name: now[name] for name in ("font.size", "lines.linewidth")}
        sizes["lines.markersize"] = now["lines.markersize"]
    if not column:
        return Style(params, looks, width, height)
    scaled = {name: COLUMN_SCALE * size for name, size in sizes.items()}
    return Style({**params, **scaled}, looks, COLUMN, COLUMN_SCALE * height)


class _Complaints(logging.Handler):
    """What matplotlib finds wrong with a style file, which it would only log."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage().strip().splitlines()[0])


def _read_params(path: Path) -> dict:
    complaints, logger = _Complaints(), logging.getLogger("matplotlib")
    logger.addHandler(complaints)
    try:
        params = dict(matplotlib.rc_params_from_file(path, use_default_template=False))
    except UnicodeDecodeError:
        params = {}
    finally:
        logger.removeHandler(complaints)
    if complaints.said:
        reason = complaints.said[0].replace(f" in file {path!r}", "").replace(f" in file {path}", "")
        raise ValueError(f"{path} is not a style that matplotlib can use: {reason.rstrip('.')}.")
    return params


@contextmanager
def sheet(
    style: Style, columns: int, rows: int = 1, row_height: float = 1.0, **share: bool | str
) -> Iterator[tuple[Figure, np.ndarray]]:
    """A figure and its panels [rows, columns], to be drawn on in the style; `row_height` is that of the style's."""
    with matplotlib.rc_context(style.params):
        size = (max(style.width, NARROWEST * columns), style.height * (1 + row_height * (rows - 1)))
        figure = Figure(figsize=size, dpi=matplotlib.rcParams["savefig.dpi"], layout="constrained")
        yield figure, figure.subplots(rows, columns, squeeze=False, **share)
        figure.draw_without_rendering()
        figure.set_layout_engine(None)  # places stay as found, whatever the format; "none" would draw every file twice


def looks(style: Style, count: int) -> list[dict]:
    return list(islice(cycle(style.looks), count))


def draw_curve(panel: Axes, rows: pl.DataFrame, value: str, ends: tuple[str, str], look: dict, label: str) -> None:
    """A line with its band, faint where `rows` are not `sure`; markers begin a layer later in each curve."""
    rows = rows.sort("layer")
    layer, sure = rows["layer"].to_numpy(), rows["sure"].to_numpy()
    middle, low, high = (rows[name].cast(pl.Float64).to_numpy().astype(float) for name in (value, *ends))
    step = max(1, len(layer) // MARKED)
    others = sum(not line.get_label().startswith("_") for line in panel.get_lines())
    marks = slice(others % step, None, step)
    panel.plot(layer, middle, markevery=marks, **look, alpha=FAINT)
    panel.plot(layer, np.where(sure, middle, np.nan), markevery=marks, **look, label=label)
    panel.fill_between(layer, low, high, where=sure, color=look["color"], alpha=0.15, linewidth=0)


def name_panels(line: Sequence[Axes], titles: Iterable[str]) -> None:
    """Titles over a row of panels, folded to their width."""
    room = 0.85 * line[0].figure.get_figwidth() / len(line)  # the rest is for the axes' numbers
    for panel, title in zip(line, titles, strict=True):
        panel.set_title(_folded(title, room, "axes.titlesize"))


def label_rows(panel: Axes, text: str, rows: int) -> None:
    """The label of a row of panels, folded to its height."""
    panel.set_ylabel(_folded(text, 0.7 * panel.figure.get_figheight() / rows, "axes.labelsize"))


def count_layers(panels: np.ndarray) -> None:
    """Layers are whole numbers; the last row of panels is labelled."""
    room = panels.flat[0].figure.get_figwidth() / panels.shape[1]  # inches of a panel
    for panel in panels.flat:
        panel.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=max(3, int(2 * room))))
    for panel in panels[-1]:
        panel.set_xlabel("Layer")


def say_where_nothing_is(panels: np.ndarray) -> None:
    for panel in panels.flat:
        if not any(np.isfinite(line.get_ydata()).any() for line in panel.get_lines()[:-1]) and not panel.patches:
            panel.text(0.5, 0.5, "not probed", transform=panel.transAxes, ha="center", color="0.5")


def add_legend(figure: Figure, together: int, last: str = "") -> None:
    """One legend below all panels, `last` after all others; `together` entries stay below one another."""
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
    where = {"loc": "outside lower center", "ncols": columns, "frameon": False}
    figure.legend(handles, [*shown, *[""] * missing], **where, columnspacing=1.0, handlelength=3.0)


def add_heading(figure: Figure, *lines: str) -> None:
    """Small lines above the panels."""
    parts = [line for text in lines for line in text.splitlines()]
    folded = [_folded(line, figure.get_figwidth(), "figure.titlesize") for line in parts]
    figure.suptitle("\n".join(folded), color="0.35")


def _letter(size: str) -> float:
    """The width in inches of a letter in the size that a key of the style has, or a little more."""
    points = FontProperties(size=matplotlib.rcParams[size]).get_size_in_points()
    return 0.57 * points / 72


def _folded(text: str, inches: float, size: str) -> str:
    letters = max(1, int(inches / _letter(size)))
    return "\n".join(textwrap.wrap(text, letters))


def save(figure: Figure, path: Path | str, style: Style) -> None:
    """Write a figure whole or not at all, in the format of its suffix; the same figure gives the same bytes."""
    kind = Path(path).suffix.removeprefix(".")
    undated = {"png": {"Software": None}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
    with matplotlib.rc_context(style.params), atomic(path) as target:
        figure.savefig(target, format=kind, metadata=undated[kind])
