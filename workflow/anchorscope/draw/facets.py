"""What all figures share: panels by the values of columns, curves with bands, one legend below, notes above."""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import cycle, product
from pathlib import Path
from typing import Any, Literal, cast

import matplotlib
import numpy as np
import pandas as pd
import polars as pl
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from anchorscope.draw.style import (
    AXIS_GREY,
    BAND_OPACITY,
    DASH_DOTTED,
    DASHED,
    DOTTED,
    FAINT,
    GREY,
    MARKERS,
    SOLID,
    Dashes,
    Style,
)
from anchorscope.draw.titles import (
    ANCHOR_TITLES,
    CLEAN_LINE,
    CUT_LINE,
    FAINT_MEANS,
    IF_ONE_MECHANISM,
    LAYER,
    RANDOM_TWIN,
    SHUFFLED_GROUPS,
    SHUFFLED_LABELS,
)
from anchorscope.draw.view import View
from anchorscope.files.atomic import atomic

MARK_EVERY = 0.15  # of a panel's diagonal
NARROWEST = {"row": 0.8, "all": 0.8, "none": 1.05}  # inches of a panel, by what shares its y axis
LEGEND_ENTRY = 1.6  # inches
SMALL_TYPE, TITLE_TYPE = 158, 100  # letters in an inch, times the style's size of type in points
TEXT_LINE = 0.14  # inches
NO_DATA = "not probed,\nor too few"
LINE_DASHES: dict[str, Dashes] = {
    "": SOLID,
    ANCHOR_TITLES["question"]: SOLID,
    ANCHOR_TITLES["answer"]: DASHED,
    CLEAN_LINE: SOLID,
    CUT_LINE: DASHED,
    SHUFFLED_LABELS: DOTTED,
    SHUFFLED_GROUPS: DOTTED,
    IF_ONE_MECHANISM: DOTTED,
    RANDOM_TWIN: DASH_DOTTED,
}
REFERENCE_LINES = (SHUFFLED_LABELS, SHUFFLED_GROUPS, IF_ONE_MECHANISM, RANDOM_TWIN)  # what curves are compared with
THIN = 0.8  # points: their lines

Entry = Line2D | Patch  # of a legend
Draw = Callable[[Axes, pl.DataFrame], str | None]  # draws some rows in a panel, and may return a note on them


def style_context(style: Style) -> AbstractContextManager:
    """Return the context in which figures of a style are drawn: what it leaves open is as in seaborn's white grid."""
    return matplotlib.rc_context({**sns.axes_style("whitegrid"), **style.params})


def pandas_frame(rows: pl.DataFrame) -> pd.DataFrame:
    """Return rows as seaborn reads them."""
    return pd.DataFrame(rows.to_dict(as_series=False))


def facet(
    rows: pl.DataFrame,
    view: View,
    draw: Draw,
    *,
    column: str = "model",
    row: Sequence[str] = (),
    labels: tuple[str, str] = (LAYER, ""),
    height: float = 1.0,
    share: Literal["row", "all", "none"] = "row",
) -> Figure:
    """Draw a panel for each title in a column, and a row of panels for each title, or combination, in others.

    `labels` are of the x and y axes. A row is `height` times as high as the style says. Panels `share` the y axis with
    the others of their row, with all or with none. Unless they share none, they share the x axis down a column of one
    model, else along a row.
    """
    columns = _combinations(rows, [column])
    lines = _combinations(rows, row)
    size = max(view.style.width, NARROWEST[share] * len(columns)), height * view.style.height * len(lines)
    figure = Figure(figsize=size, dpi=matplotlib.rcParams["savefig.dpi"], layout="constrained")
    share_x: Literal["none", "col", "row"] = "col" if column == "model" else "row"
    if share == "none":
        share_x = "none"
    panels = figure.subplots(len(lines), len(columns), squeeze=False, sharex=share_x, sharey=share)
    for panel, (line, cell) in zip(panels.flat, product(lines, columns), strict=True):
        panel_rows = rows.filter(**line, **cell)
        note = ""
        if panel_rows.is_empty():
            panel.text(0.5, 0.5, NO_DATA, transform=panel.transAxes, ha="center", va="center", color="0.5")
        else:
            note = textwrap.fill(draw(panel, panel_rows) or "", _letters(0.6 * size[0] / len(columns), SMALL_TYPE))
        row_title = ", ".join(line.values()) if cell is columns[0] else ""
        _write_over(panel, "\n".join(filter(None, [row_title, note])))
        panel.set(xlabel="", ylabel="")
        if labels[0] == LAYER:
            panel.xaxis.set_major_locator(MaxNLocator(nbins="auto", integer=True))
    # The titles of columns stand above all that stands over a panel of the first row.
    above = "\n" * len(panels[0, 0].get_title(loc="left").splitlines())
    letters = _letters(size[0] / len(columns), TITLE_TYPE)
    for panel, last_panel, cell in zip(panels[0], panels[-1], columns, strict=True):
        panel.set_title(textwrap.fill(cell[column], letters) + above)
        last_panel.set_xlabel(textwrap.fill(labels[0], letters))
    for panel in panels[:, 0]:
        panel.set_ylabel(labels[1])
    return figure


def _write_over(panel: Axes, text: str) -> None:
    """Write small text over the left end of a panel, and over the next ones if it is long."""
    if text:
        room = "\n".join(" " for _ in text.splitlines())
        panel.set_title(room, loc="left", fontsize="small")
        pad = 0, matplotlib.rcParams["axes.titlepad"]
        panel.annotate(
            text, (0, 1), pad, "axes fraction", textcoords="offset points", fontsize="small", in_layout=False
        )


def titles_of(rows: pl.DataFrame, column: str) -> list[str]:
    """Return the titles that a column may have, in order."""
    return cast(pl.Enum, rows.schema[column]).categories.to_list()


def _combinations(rows: pl.DataFrame, columns: Sequence[str]) -> list[dict[str, str]]:
    """Return every combination of the titles that columns may have."""
    combinations = product(*(titles_of(rows, name) for name in columns))
    return [dict(zip(columns, titles, strict=True)) for titles in combinations]


def _letters(inches: float, in_an_inch: int) -> int:
    """Return how many letters fit, at least one."""
    return max(1, int(in_an_inch / matplotlib.rcParams["font.size"] * inches))


def curve_figure(rows: pl.DataFrame, view: View, heading: str, *, hue: str = "dataset", **layout: Any) -> Figure:
    """Draw a figure of curves against layers in panels as `facet` lays them out; `draw_curves` has the columns."""
    palette = view.palette(titles_of(rows, hue))
    figure = facet(rows, view, lambda panel, panel_rows: draw_curves(panel, panel_rows, palette, hue=hue), **layout)
    lines = [name for name in LINE_DASHES if name and name in set(rows["line"])]
    line_entries = [entry(name, dashes=LINE_DASHES[name]) for name in lines]
    return finish(figure, view, heading, colour_entries(palette) + line_entries)


def draw_curves(
    panel: Axes, rows: pl.DataFrame, palette: Mapping[str, str], *, hue: str = "dataset", marked: bool = True
) -> None:
    """Draw `value` against `layer` with a band from `low` to `high`; `hue` has the colour and `line` the dashes.

    Curves are faint where rows are not `sure`, and broken where a layer is missing. Those of one look are told apart by
    their `anchor`. A line stands at the `level` from which curves are seen, zero without such a column.
    """
    keys = [name for name in (hue, "line", "anchor") if name in rows.columns]
    looks = pl.concat_str(hue, "line", separator="\n")
    curves = (
        rows.drop_nulls("value")
        .sort(*keys, "layer")
        .with_columns(look=looks, is_beside=pl.col("line").is_in(REFERENCE_LINES))
    )
    dashes = {f"{name}\n{line}": LINE_DASHES[line] for name, line in product(palette, LINE_DASHES)}
    shapes = dict(zip(palette, cycle(MARKERS), strict=False))
    markers = {f"{name}\n{line}": shapes[name] for name, line in product(palette, LINE_DASHES)}
    marks: dict[str, Any] = {"markers": markers if marked else False, "markevery": MARK_EVERY, "markeredgewidth": 0}
    main, beside = curves.filter(~pl.col("is_beside")), _with_segments(curves.filter("is_beside"), keys)
    faint = _with_segments(main.filter((~pl.col("sure")).any().over(keys)), keys)
    firm = _with_segments(main.filter("sure"), keys)
    for segments, look in ((faint, {"alpha": FAINT, **marks}), (firm, marks), (beside, {"linewidth": THIN})):
        if not segments.is_empty():
            sns.lineplot(
                pandas_frame(segments),
                x="layer",
                y="value",
                hue=hue,
                style="look",
                units="segment",
                palette=palette,
                dashes=dashes,
                estimator=None,
                legend=False,
                ax=panel,
                **look,
            )
    mark_single_points(panel)
    for segments in (firm, beside):
        banded = _with_segments(segments.drop_nulls(["low", "high"]), keys)
        for band in banded.partition_by("segment"):
            colour = GREY if segments is beside else palette[band[hue][0]]
            panel.fill_between(band["layer"], band["low"], band["high"], color=colour, alpha=BAND_OPACITY, linewidth=0)
    level = rows["level"][0] if "level" in rows.columns else 0
    panel.axhline(level, color=AXIS_GREY, linewidth=0.8, zorder=0)


def mark_single_points(panel: Axes) -> None:
    """Show lines of one point, such as a layer between missing ones, which would not be seen."""
    for line in panel.get_lines():
        if np.size(line.get_xdata()) == 1:
            marker = line.get_marker()
            line.set(marker="o" if marker in ("", "None", None) else marker, markevery=None)


def _with_segments(curves: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Number the parts of curves in which no layer is missing."""
    is_another_curve = pl.any_horizontal(pl.col(key).ne_missing(pl.col(key).shift()) for key in keys)
    begins = is_another_curve | (pl.col("layer").diff() != 1)
    return curves.with_columns(segment=begins.fill_null(True).cum_sum())


def draw_marks(panel: Axes, rows: pl.DataFrame, palette: Mapping[str, str], *, hue: str = "dataset") -> None:
    """Draw each `value` at its `place` on the y axis, with a line from `low` to `high` if there are any.

    A mark has the shape of its `marker`, and is white inside if it is `hollow`.
    """
    size = matplotlib.rcParams["lines.markersize"] ** 2
    look: dict[str, Any] = {"s": size, "linewidth": 0.7, "zorder": 3, "legend": False}
    for marks in rows.partition_by("marker", "hollow"):
        colours = [palette[name] for name in marks[hue]]
        if "low" in rows.columns:
            panel.hlines(marks["place"], marks["low"], marks["high"], colors=colours)
        look["marker"] = marks["marker"][0]
        sns.scatterplot(pandas_frame(marks), x="value", y="place", hue=hue, palette=palette, ax=panel, **look)
        panel.collections[-1].set_edgecolor(colours)
        if marks["hollow"][0]:
            panel.collections[-1].set_facecolor("white")


def entry(
    name: str, colour: str = GREY, *, dashes: Dashes | None = None, marker: str = "", hollow: bool = False
) -> Line2D:
    """Return an entry of a legend: a line if there are dashes, a mark or both."""
    face = "white" if hollow else colour
    line: Any = "" if dashes is None else (0, dashes) if dashes else "-"
    return Line2D([], [], color=colour, label=name, marker=marker, markerfacecolor=face, linestyle=line)


def colour_entries(palette: Mapping[str, str]) -> list[Line2D]:
    """Return an entry for each colour of a palette, with its marker."""
    marked = zip(palette.items(), cycle(MARKERS), strict=False)
    return [entry(name, colour, dashes=SOLID, marker=marker) for (name, colour), marker in marked]


def finish(figure: Figure, view: View, heading: str, entries: Sequence[Entry]) -> Figure:
    """Write the heading and notes above all panels and the legend below them, then lay the figure out."""
    width = figure.get_figwidth()
    is_faint = any(line.get_alpha() == FAINT for panel in figure.axes for line in panel.get_lines())
    warnings = f"{FAINT_MEANS}. {view.note}" if is_faint else view.note
    letters = _letters(width, SMALL_TYPE)
    notes = [*textwrap.wrap(heading, letters), *textwrap.wrap(warnings, letters)]
    columns = max(1, min(int(width / LEGEND_ENTRY), len(entries)))
    letters = _letters(width / columns - 0.35, SMALL_TYPE)
    labels = [textwrap.fill(str(entry.get_label()), letters) for entry in entries]
    look: dict[str, Any] = {"frameon": False, "columnspacing": 1, "handlelength": 2.6}
    figure.legend(entries, labels, loc="outside lower center", ncols=columns, **look)
    legend_lines = len(labels) / columns * max((label.count("\n") + 1 for label in labels), default=0)
    figure.suptitle("\n".join(notes), color=GREY)
    figure.set_figheight(figure.get_figheight() + TEXT_LINE * (len(notes) + legend_lines))
    figure.draw_without_rendering()
    figure.set_layout_engine(None)  # the layout is final, whatever the format; "none" would draw every file twice
    return figure


def save(figure: Figure, path: Path | str, style: Style) -> None:
    """Write a figure whole or not at all, in the format of the path's suffix; the same figure gives the same bytes."""
    suffix = Path(path).suffix.removeprefix(".")
    undated = {"png": {"Software": None}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
    with matplotlib.rc_context(style.params), atomic(path) as target:
        figure.savefig(target, format=suffix, metadata=undated[suffix])
