"""The figures of detection: every method's AUC, what carries over to other datasets, reliability and risk."""

import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anchorscope.detect.methods import LEARNT, METHOD_KINDS, METHOD_TITLES, METHODS, OTHERS, PROBE
from anchorscope.draw.panels import COLUMN, Tables, View, grid, looks

AT_PROBE, CHANCE = "the plain probe's AUC", 0.5
CURVE_METHODS = ("mean_logprob", "p_true", PROBE, "stacked", "mop", "pr")
LINE = 0.055  # of the style's row height, for one method
FEWEST_DRAWN = 5  # examples in a bin that is drawn
MAP_LINE = 0.09  # of the style's row height, for one row of a map
ON_PAGE, IN_COLUMN = (5, 22), (3, 13)  # maps side by side, and letters of a title in one line
DARK = 0.82  # AUC from which numbers are white


def draw_detection(tables: Tables, view: View) -> Figure:
    """The AUC of every method with its interval, a row of panels for each model, a column for each dataset."""
    table = tables["detection"]
    rows = view.of(table)
    methods = [name for name in METHODS if name in set(rows["method"])]
    heights = {name: len(methods) - place for place, name in enumerate(methods)}
    height = max(1.0, LINE * len(methods) + 0.15)

    def draw(panel: Axes, cell: Mapping[str, Any]) -> None:
        _draw_areas(panel, rows.filter(**cell), heights, view)
        panel.set_yticks(list(heights.values()), [METHOD_TITLES[name] for name in heights])

    return grid(
        view,
        table,
        view.by_model(table),
        draw,
        columns=view.by_dataset("{}"),
        heading="how well each method tells hallucinated from right answers, out of fold, with 95 % intervals",
        below="AUC",
        level=None,
        first_height=height,
        row_height=height,
        sharex=True,
        together=1,
        ylim=(0.3, len(methods) + 0.7),
        last=AT_PROBE,
    )


def _draw_areas(panel: Axes, rows: pl.DataFrame, heights: Mapping[str, int], view: View) -> None:
    """A point and its interval for each method, coloured by its kind, and a line where the plain probe is."""
    for wanted, look, title in view.series("kind", METHOD_KINDS):
        mine = rows.filter(**wanted)
        if mine.is_empty():
            continue
        places = [heights[method] for method in mine["method"]]
        panel.hlines(places, mine["auc_low"], mine["auc_high"], color=look["color"])
        panel.plot(mine["auc"], places, color=look["color"], marker="o", linestyle="", label=title)
    for area in rows.filter(method=PROBE)["auc"]:
        panel.axvline(area, color="0.35", linestyle="--", linewidth=0.8, zorder=0, label=AT_PROBE)
    panel.axvline(CHANCE, color="0.6", linewidth=0.8, zorder=0)
    panel.grid(False, axis="y")
    borders = np.flatnonzero(np.diff([list(METHOD_KINDS).index(METHODS[name].kind) for name in heights]))
    from_side_to_side = panel.get_yaxis_transform()
    panel.hlines(len(heights) - borders - 0.5, 0, 1, color="0.85", linewidth=0.6, zorder=0, transform=from_side_to_side)


def draw_transfer(tables: Tables, view: View) -> Figure:
    """The AUC of every trained method on each dataset (columns) after training on each of them (rows)."""
    table = view.of(tables["transfer"])
    methods = [name for name in LEARNT if name in set(table["method"])]
    tested_on = {name: title for name, title in view.datasets.items() if name in set(table["dataset"])}
    trained_on = {**tested_on, **({OTHERS: "all others"} if len(tested_on) > 1 else {})}
    across, letters = IN_COLUMN if view.style.width == COLUMN else ON_PAGE
    columns = min(len(methods), across)
    starts = range(0, len(methods), columns)  # of each row of a model's maps
    models = view.by_model(tables["detection"])
    lines = [
        (title if len(models) > 1 else "", {**model, "start": start}) for title, model in models for start in starts
    ]

    def draw(panel: Axes, cell: Mapping[str, Any]) -> None:
        place = cell["start"] + cell["column"]
        panel.set_visible(place < len(methods))
        if place < len(methods):
            method = methods[place]
            _draw_map(panel, table.filter(model=cell["model"], method=method), list(trained_on), list(tested_on))
            panel.set_title(textwrap.fill(METHOD_TITLES[method], letters), fontsize="small")
            if place + columns >= len(methods) and models[-1][1]["model"] == cell["model"]:  # the lowest of a column
                panel.tick_params(axis="x", labelbottom=True, rotation=90)
                panel.xaxis.set_in_layout(cell["start"] == starts[-1])  # the other labels stand where there is no map
        panel.set_yticks(range(len(trained_on)), trained_on.values())
        panel.set_xticks(range(len(tested_on)), tested_on.values())

    titles = ", ".join(title for title, _ in models)
    alone = "" if len(tested_on) > 1 else "\none dataset: there is nothing to carry over"
    shared = "\nblank: the datasets share too much to learn from one for the other"
    blank = shared if table["auc"].null_count() else ""
    height = max(0.2, MAP_LINE * len(trained_on))
    return grid(
        view,
        tables["detection"],
        lines,
        draw,
        columns=[("", {"column": column}) for column in range(columns)],
        heading=f"{titles}: AUC in %, trained on (rows) and tested on (columns){alone}{blank}",
        below="",
        level=None,
        first_height=height + 0.15,
        row_height=height,
        sharex=True,
    )


def _draw_map(panel: Axes, rows: pl.DataFrame, trained_on: list[str], datasets: list[str]) -> None:
    """A square for each pair of datasets, the darker the better, with its AUC in percent."""
    found = rows.drop_nulls("auc").select("trained_on", "dataset", "auc")
    known = {(teacher, tested): auc for teacher, tested, auc in found.iter_rows()}
    values = np.array([[known.get((teacher, tested), np.nan) for tested in datasets] for teacher in trained_on])
    panel.imshow(values, cmap="Blues", vmin=CHANCE, vmax=1.0, aspect="auto", interpolation="nearest")
    panel.grid(False)
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            colour = "white" if value > DARK else "0.15"
            panel.text(column, row, f"{100 * value:.0f}", ha="center", va="center", fontsize="x-small", color=colour)


def draw_reliability(tables: Tables, view: View) -> Figure:
    """Whether probabilities are what they say, and how many hallucinated answers are left when doubtful ones go."""
    bins, curves = view.of(tables["reliability"]), view.of(tables["coverage"])
    said, kept = "P(hallucinated), %", "answers kept, %"
    columns = [
        (f"{title}, {kind}", {**model, "below": below})
        for title, model in view.by_model(tables["detection"])
        for kind, below in (("reliability", said), ("risk by coverage", kept))
    ]

    def draw(panel: Axes, cell: dict[str, Any]) -> None:
        below = cell.pop("below")
        every = curves.filter(**cell)
        for method, look in zip(CURVE_METHODS, looks(view.style, len(CURVE_METHODS)), strict=True):
            if below == said:
                mine = bins.filter(pl.col("n") >= FEWEST_DRAWN, method=method, **cell)
                panel.plot(100 * mine["p"], 100 * mine["hallucinated_share"], **look)
            else:
                mine = every.filter(method=method)
                label = METHOD_TITLES[method] if len(mine) else None
                panel.plot(100 * mine["coverage"], 100 * mine["risk"], **{**look, "marker": ""}, label=label)
        if below == kept:
            panel.axhline(0, color="0.6", linewidth=0.8, zorder=0)
        elif not every.is_empty():
            panel.plot([0, 100], [0, 100], color="0.6", linewidth=0.8, marker="", zorder=0)

    return grid(
        view,
        tables["detection"],
        view.by_dataset("{}, hallucinated, %"),
        draw,
        columns=columns,
        heading=f"left: how many were hallucinated, by what was said, in ten bins of at least {FEWEST_DRAWN} answers; "
        "right: how many are, among the answers that a method doubts least",
        level=None,
        below="",
        row_height=0.7,
        together=1,
    )
