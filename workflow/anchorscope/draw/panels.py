"""What all figures share: their style, what they show, panels, curves with bands, one legend below, and how they are
saved.
"""

import logging
import re
import textwrap
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice, product
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any, Literal, cast

import matplotlib.style
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.gridspec import SubplotSpec
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, MultipleLocator

from anchorscope.extract.axes import Headline
from anchorscope.files.atomic import atomic
from anchorscope.files.bundled import RESOURCES
from anchorscope.files.faults import fault_of_file, shortened
from anchorscope.summarise.wording import mark_random, notes

BUNDLED_STYLE = RESOURCES / "figures.mplstyle"
LOWEST = 0.33  # of the style's height: where titles and legend leave a panel less, the figure grows
HIGHEST = 3.0  # times as high as without them
FEW = 20  # groups of fewer examples are drawn faint, and so are layers whose probe is no better than chance
FAINT = 0.25
FAINT_MEANS = f"faint: fewer than {FEW} examples, or a probe no better than chance"
GREY = "0.4"
LEAST_MARKED, MARKED = 3, 8  # about how many layers of a curve have a marker, the more the wider its panel
COLUMN = 3.3  # inches: one column of a two-column page
COLUMN_SCALE = 0.85  # type and lines are that much smaller there, and the smallest type still 5.6 points
NARROWEST = 1.05  # inches per panel; the figure becomes wider where that takes more room
NUMBERS = 0.35  # inches more per panel where each has the numbers of its own y axis
LOWEST_ROW = 0.45  # of the highest row, where rows are as high as their curves need
LEAST_REACH = 2.0  # points of ΔP that such a row shows, however flat its curves
# What a style file need not say: a white page, a pale grid behind everything and no ticks.
WHITE_GRID = {
    **{f"{part}.facecolor": "white" for part in ("figure", "axes")},
    **dict.fromkeys(["text.color", "axes.labelcolor", "xtick.color", "ytick.color"], "0.15"),
    **dict.fromkeys(["axes.edgecolor", "grid.color"], "0.8"),
    **{f"axes.spines.{side}": True for side in ("left", "right", "top", "bottom")},
    **dict.fromkeys(["xtick.top", "xtick.bottom", "ytick.left", "ytick.right"], False),
    **{f"{axis}tick.direction": "out" for axis in "xy"},
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.linestyle": "-",
    "lines.solid_capstyle": "round",
    "patch.edgecolor": "white",
    "patch.force_edgecolor": True,
    "font.family": ["sans-serif"],
    "font.sans-serif": ["Arial", "DejaVu Sans", "Liberation Sans", "Bitstream Vera Sans", "sans-serif"],
}
FIXED = {
    "svg.fonttype": "none",  # text stays text
    "pdf.fonttype": 42,
    "svg.hashsalt": "anchorscope",  # the same figure gives the same file
    "text.usetex": False,  # LaTeX would read and write whatever files a style tells it to
    "text.parse_math": False,  # dollar signs in a title do not make it a formula
    "figure.autolayout": False,  # `grid` lays the figure out
    "figure.constrained_layout.use": False,
}
LOOKS = ("axes.", "figure.", "font.", "grid.", "legend.", "lines.", "patch.", "text.", "xtick.", "ytick.")
BEFORE_UNIT = r"(?<=\d) (?=%)| (?=(?:%|points|ΔP)(?:,|$))"  # the space in "95 %" and in the label "hallucinated, %"
ANCHOR_LETTERS = {"question": "Q", "answer": "A"}
NULL_LABEL = "if one mechanism"
PUBLISHED_PLACE = Headline("resid", "answer_last")
LAYER = "Layer"  # the x axis of most figures
# One entry per dataset, or other series. Colour-blind readers tell the colours apart (a test simulates them), and all
# are dark enough on white; the published figure alone has the style's own.
PALETTE = ("#126df5", "#dd6f23", "#0d5326", "#984f92", "#480a55", "#b57baf", "#77108b", "#2d3acc")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")

Tables = Mapping[str, pl.DataFrame]  # those of a run, by name
Strip = tuple[str, dict[str, Any]]  # a row or column of panels: its title, and what its panels show
Series = tuple[dict[str, Any], dict, str]  # a curve: which rows it is of, its look and its label
Draw = Callable[[Axes, dict[str, Any]], object]  # draws in a panel what it shows
Share = bool | Literal["row", "col"]  # which panels share an axis
ShareY = Share | Literal["scale"]  # rows have axes of their own, on which a unit is equally high
Size = Literal["axes.titlesize", "axes.labelsize", "legend.fontsize", "figure.titlesize"]  # keys of a style


@dataclass(frozen=True)
class Style:
    """A style file at the width of a page or of a column."""

    params: dict  # of matplotlib
    published: list[dict]  # colour, line and marker of each curve of the published figure: two per dataset
    looks: list[dict]  # those of each dataset, or other series, in all other figures
    width: float  # inches
    height: float  # inches of one row of panels


def changed_settings() -> dict:
    """What the user has set otherwise than matplotlib does, as far as it is about looks."""
    now, usual = matplotlib.rcParams, matplotlib.rcParamsDefault
    return {name: now[name] for name in usual if name.startswith(LOOKS) and now[name] != usual[name]}


def read_style(path: Path | str | None = None, column: bool = False, changed: Mapping | None = None) -> Style:
    """Read a style file, or one of matplotlib's styles by its name; without `path`, the bundled one, with changes."""
    if path is None:
        params = {**_read_params(BUNDLED_STYLE), **(changed or {})}
    elif str(path) in matplotlib.style.library:
        params = {**_read_params(BUNDLED_STYLE), **matplotlib.style.library[str(path)]}
    else:
        if fault := fault_of_file(path):
            raise ValueError(f"{shortened(path)} {fault}, and matplotlib has no style of that name.")
        params = _read_params(Path(path))
    params = {**WHITE_GRID, **params, **FIXED}
    with matplotlib.rc_context(params):
        now = matplotlib.rcParams
        own = now["axes.prop_cycle"] != _read_params(BUNDLED_STYLE)["axes.prop_cycle"]
        published = [{"linestyle": "-", "marker": "", **look} for look in now["axes.prop_cycle"]]
        width, height = now["figure.figsize"]
        sizes = {name: now[name] for name in ("font.size", "lines.linewidth", "lines.markersize")}
    plain = zip(PALETTE, MARKERS, strict=True)
    looks = [{"color": colour, "linestyle": "-", "marker": marker} for colour, marker in plain]
    if own:  # whoever brings colours wants to see them everywhere
        looks = published[:: len(ANCHOR_LETTERS)]
    if column:
        params |= {name: COLUMN_SCALE * size for name, size in sizes.items()}
        width, height = COLUMN, COLUMN_SCALE * height
    return Style(params=params, published=published, looks=looks, width=width, height=height)


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


def looks(style: Style, count: int) -> list[dict]:
    """The looks of the first `count` series, over again where the style has fewer."""
    return list(islice(cycle(style.looks), count))


def _width(panel: Axes) -> float:
    """Inches of the sheet for a panel, with its numbers."""
    columns = cast(SubplotSpec, panel.get_subplotspec()).get_gridspec().ncols  # every panel is one of a grid
    return cast(Figure, panel.figure).get_figwidth() / columns


def _draw_curve(panel: Axes, rows: pl.DataFrame, value: str, *, ends: tuple[str, str], look: dict, label: str) -> None:
    """A line with its band, faint where `rows` are not `sure`; each curve's markers begin one layer later."""
    rows = rows.sort("layer")
    layer, sure = rows["layer"].to_numpy(), rows["sure"].to_numpy()
    middle, low, high = (rows[name].cast(pl.Float64).to_numpy().astype(float) for name in (value, *ends))
    step = max(1, len(layer) // int(np.clip(4 * _width(panel), LEAST_MARKED, MARKED)))
    others = sum(not str(line.get_label()).startswith("_") for line in panel.get_lines())
    marks = slice(others % step, None, step)
    if np.isfinite(np.where(sure, np.nan, middle)).any():
        panel.plot(layer, middle, markevery=marks, **look, alpha=FAINT)
    panel.plot(layer, np.where(sure, middle, np.nan), markevery=marks, **look, label=label)
    panel.fill_between(layer, low, high, where=sure, color=look["color"], alpha=0.15, linewidth=0)


def draw_curves(
    panel: Axes,
    rows: pl.DataFrame,
    series: Iterable[Series],
    value: str,
    ends: tuple[str, str] = ("low", "high"),
    *,
    null: bool = False,
) -> None:
    """Several curves, each of its own rows; with `null`, also where one mechanism would put them."""
    for wanted, look, label in series:
        mine = rows.filter(**wanted)
        _draw_curve(panel, mine, value, ends=ends, look=look, label=label)
        if null:
            _draw_null(panel, mine, look)
    if null:
        name_lines(panel, NULL_LABEL, ":")


def _draw_null(panel: Axes, rows: pl.DataFrame, look: dict) -> None:
    """Where one mechanism would put a curve, where that is known."""
    band = rows.drop_nulls("null").sort("layer")
    layer, middle, low, high = (band[name].to_numpy() for name in ("layer", "null", "null_low", "null_high"))
    panel.fill_between(layer, low, high, color=GREY, alpha=0.15, linewidth=0, zorder=0)
    panel.plot(layer, middle, color=look["color"], linestyle=":", linewidth=0.8, marker="")


def name_lines(panel: Axes, label: str, line: str) -> None:
    """One entry of the legend for lines of all colours that are dotted, or dashed."""
    panel.plot([], [], color=GREY, linestyle=line, marker="", label=label)


@dataclass(frozen=True)
class View:
    """What a figure shows: models and datasets by name and title, in order, and the probe that is read."""

    models: Mapping[str, str]
    datasets: Mapping[str, str]
    headline: Headline = PUBLISHED_PLACE
    note: str = ""
    style: Style = field(default_factory=read_style)

    def of(self, table: pl.DataFrame) -> pl.DataFrame:
        """The part of a table that the figure shows; a table of the headline alone does not name it."""
        shown = table.filter(pl.col("model").is_in(list(self.models)), pl.col("dataset").is_in(list(self.datasets)))
        headline = {name: value for name, value in vars(self.headline).items() if name in table.columns}
        return shown.filter(**headline)

    def titles(self, table: pl.DataFrame) -> dict[str, str]:
        """The models' titles by name; those of models with random weights say so."""
        return mark_random(self.models, dict(table.select("model", "weights").unique().iter_rows()))

    def by_model(self, table: pl.DataFrame) -> list[Strip]:
        """A column of panels for each model."""
        return [(title, {"model": name}) for name, title in self.titles(table).items()]

    def by_dataset(self, title: str) -> list[Strip]:
        """A row of panels for each dataset, whose title stands in the braces."""
        return [(title.format(name), {"dataset": dataset}) for dataset, name in self.datasets.items()]

    def series(self, column: str, titles: Mapping[str, str]) -> list[Series]:
        """A curve for each value of a column, which has a title."""
        chosen = zip(titles.items(), looks(self.style, len(titles)), strict=True)
        return [({column: name}, look, title) for (name, title), look in chosen]

    def one_per_dataset(self) -> list[Series]:
        """A curve for each dataset."""
        return self.series("dataset", self.datasets)

    def both_anchors(self) -> list[Series]:
        """Two curves for each dataset in its colour: Question-Anchored solid, Answer-Anchored dashed."""
        return [
            ({**dataset, "anchor": anchor}, {**look, "linestyle": line}, f"{letter} {title}")
            for dataset, look, title in self.one_per_dataset()
            for (anchor, letter), line in zip(ANCHOR_LETTERS.items(), ("-", "--"), strict=True)
        ]


def grid(
    view: View,
    summary: pl.DataFrame,
    rows: Sequence[Strip],
    draw: Draw,
    *,
    columns: Sequence[Strip] | None = None,
    heading: str,
    below: str = LAYER,
    beside: str = "",
    level: float | None = 0,
    ylim: tuple[float, float | None] | None = None,
    first_height: float = 1.0,
    row_height: float = 1.0,
    sharex: Share = "col",
    sharey: ShareY = True,
    key: Sequence[str] | None = None,
    together: int = len(ANCHOR_LETTERS),
    last: str = NULL_LABEL,
    nothing: str = "not probed",
    narrowest: float | None = None,
) -> Figure:
    """A figure: `draw` draws in each panel, and gets it with what it shows.

    Rows and columns (without any, the models) have titles, the x axes a label `below` the last row (a column may have
    one of its own), the y axes one `beside` them all (the rows' titles are above them then), and every panel a line at
    the `level` from which curves are seen. The first row is `first_height` times as high as the style says, each other
    one `row_height` times; where rows share a scale, the highest of them is. The legend has every label, or those of
    the `key`. Panels without a curve say that there is `nothing`, and why.
    """
    columns = view.by_model(summary) if columns is None else columns
    least_width = narrowest or NARROWEST + NUMBERS * (not sharey)
    width = max(view.style.width, least_width * len(columns))
    height = view.style.height * (first_height + row_height * (len(rows) - 1))
    with matplotlib.rc_context(view.style.params):
        figure = Figure(figsize=(width, height), dpi=matplotlib.rcParams["savefig.dpi"], layout="constrained")
        shared = "row" if sharey == "scale" else sharey
        panels = figure.subplots(len(rows), len(columns), squeeze=False, sharex=sharex, sharey=shared)
        for panel, ((_, across), (_, down)) in zip(panels.flat, product(rows, columns), strict=True):
            draw(panel, {**across, **down})
        if ylim:
            panels[0, 0].set_ylim(ylim)
        for panel in panels.flat:
            if level is not None:
                panel.axhline(level, color="0.6", linewidth=0.8, zorder=0)
            curves = any(np.isfinite(line.get_ydata()).any() for line in panel.get_lines()[:-1])
            if not (curves or panel.patches or panel.images):
                said = _folded(nothing, 0.8 * _width(panel), "axes.labelsize")
                panel.text(0.5, 0.5, said, transform=panel.transAxes, ha="center", color="0.5", in_layout=False)
        shares = _put_on_one_scale(panels) if sharey == "scale" else np.ones(len(rows))
        height = view.style.height * (first_height + row_height * (shares.sum() - 1))
        figure.set_figheight(height)
        _name_rows(panels, rows, beside)
        _name_columns(panels, columns, below)
        add_legend(figure, together, last, key)
        # With what a reader must know before taking the figure for the published one.
        faint = any(line.get_alpha() == FAINT for panel in panels.flat for line in panel.get_lines())
        known = [FAINT_MEANS * faint, *notes(summary, view.models, view.datasets), view.note]
        lines = "\n".join(filter(None, [heading, *known])).splitlines()
        figure.suptitle("\n".join(_folded(line, width, "figure.titlesize") for line in lines), color="0.35")
        least = LOWEST * view.style.height * min(first_height, row_height) * shares.min()
        _lay_out(figure, least, HIGHEST * height)
        if _fold_titles(panels[0]):
            _lay_out(figure, least, HIGHEST * height)
        figure.set_layout_engine(None)  # the layout is final, whatever the format; "none" would draw every file twice
    return figure


def _lay_out(figure: Figure, least: float, highest: float) -> None:
    """Find a place for everything on a sheet that grows until each panel has so many inches of height."""
    while _squeezed(figure, least) and figure.get_figheight() < highest:
        figure.set_figheight(1.2 * figure.get_figheight())


def _squeezed(figure: Figure, least: float) -> bool:
    """Whether titles and legend leave a panel less than so many inches of height; everything is laid out to see."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "constrained_layout not applied")
        try:
            figure.draw_without_rendering()
        except UserWarning:
            return True
    return min(panel.get_position().height for panel in figure.axes) * figure.get_figheight() < least


def _put_on_one_scale(panels: np.ndarray) -> np.ndarray:
    """A unit is equally high in every row, and each row as high as its curves need; as shares of the highest row."""
    low, high = np.transpose([row[0].get_ylim() for row in panels])
    reach = np.maximum(high - low, max(LEAST_REACH, LOWEST_ROW * (high - low).max()))
    margin = (reach - (high - low)) / 2
    (step,) = set(np.diff(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]).tick_values(0, reach.max())[:2]))
    for row, bottom, top in zip(panels, low - margin, high + margin, strict=True):
        row[0].set_ylim(bottom, top)
        row[0].yaxis.set_major_locator(MultipleLocator(step))
    panels[0, 0].get_gridspec().set_height_ratios(reach)
    return reach / reach.max()


def _name_rows(panels: np.ndarray, rows: Sequence[Strip], beside: str) -> None:
    """The titles of rows: beside them, where these are equally high; above them, where the y axes have one label."""
    figure = panels[0, 0].figure
    if beside:
        figure.supylabel(beside, fontsize=matplotlib.rcParams["axes.labelsize"])
    for panel, (title, _) in zip(panels[:, 0], rows, strict=True):
        if beside:
            write_over(panel, _folded(title, 0.8 * figure.get_figwidth(), "legend.fontsize"))  # and over the next ones
        else:
            panel.set_ylabel(_folded(title, 0.7 * figure.get_figheight() / len(rows), "axes.labelsize"))


def write_over(panel: Axes, text: str) -> None:
    """A small text over the left end of a panel, where it hides no curve."""
    panel.set_title(text, loc="left", fontsize="small")


def _name_columns(panels: np.ndarray, columns: Sequence[Strip], below: str) -> None:
    """Titles of columns and x axes whose panels have none of their own; layers are counted in whole numbers."""
    figure = panels[0, 0].figure
    raised = "\n" * any(panel.get_title(loc="left") for panel in panels[0])  # above what stands over a panel
    for upper, lower, (title, shown) in zip(panels[0], panels[-1], columns, strict=True):
        if title and not upper.get_title():
            upper.set_title(title + raised)
        if not lower.get_xlabel():
            lower.set_xlabel(_folded(shown.get("below", below), 0.95 * _width(lower), "axes.labelsize"))
    if below == LAYER:
        ticks = max(3, int(2 * figure.get_figwidth() / len(columns)))
        for panel in panels.flat:
            panel.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=ticks))


def _fold_titles(panels: np.ndarray) -> bool:
    """Fold the titles of a row of panels that are wider than the room which the layout leaves them; whether one is."""
    width = panels[0].figure.get_figwidth()
    middles = [width * (panel.get_position().x0 + panel.get_position().x1) / 2 for panel in panels]
    # Beyond each edge of the sheet, as if another panel were there.
    borders = [-middles[0], *middles, 2 * width - middles[-1]]
    folded = False
    for panel, before, middle, after in zip(panels, borders, middles, borders[2:], strict=False):
        room = 0.97 * min(middle - before, after - middle)
        if panel.title.get_window_extent().width > room * panel.figure.dpi:
            lines, raised = panel.get_title().rstrip("\n"), panel.get_title().endswith("\n")
            panel.title.set_text(_folded(lines, room, "axes.titlesize") + "\n" * raised)
            folded = True
    return folded


def name_panel(panel: Axes, title: str, columns: float) -> None:
    """The title over a panel, folded to its width where there are so many columns."""
    width = cast(Figure, panel.figure).get_figwidth()  # no panel here is in a subfigure
    panel.set_title(_folded(title, 0.85 * width / columns, "axes.titlesize"))  # the rest is for the axes' numbers


def add_legend(figure: Figure, together: int, last: str = "", key: Sequence[str] | None = None) -> None:
    """One legend below all panels, `last` after all others; every `together` entries share a column.

    With a `key`, these labels only, in its order.
    """
    entries = [entry for panel in figure.axes for entry in zip(*panel.get_legend_handles_labels(), strict=True)]
    shown = {label: handle for handle, label in sorted(entries, key=lambda entry: entry[1] == last)}
    if key is not None:
        shown = {label: shown[label] for label in key if label in shown}
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
        handlelength=2.6,
    )


def _letter(size: Size) -> float:
    """The width in inches of a letter in one of the style's sizes, or a little more."""
    points = FontProperties(size=matplotlib.rcParams[size]).get_size_in_points()
    return 0.57 * points / 72


def _folded(text: str, inches: float, size: Size) -> str:
    """A text in lines of at most that width; a unit stays on the line of the word before it."""
    tied = re.sub(BEFORE_UNIT, "\u00a0", text)
    letters = max(1, int(inches / _letter(size)), *(len(word) for word in re.split("[ -]", tied) if "\u00a0" in word))
    return "\n".join(textwrap.wrap(tied, letters)).replace("\u00a0", " ")


def save(figure: Figure, path: Path | str, style: Style) -> None:
    """Write a figure whole or not at all, in the format of the path's suffix; the same figure gives the same bytes."""
    suffix = Path(path).suffix.removeprefix(".")
    undated = {"png": {"Software": None}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
    with matplotlib.rc_context(style.params), atomic(path) as target:
        figure.savefig(target, format=suffix, metadata=undated[suffix])
