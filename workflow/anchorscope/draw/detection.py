"""The figures of detection: every method's AUC, what carries over to other datasets, reliability and risk."""

from collections.abc import Collection
from itertools import cycle
from typing import Any

import polars as pl
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from anchorscope.detect.methods import LEARNT, METHOD_KINDS, METHOD_TITLES, METHODS, OTHERS, PROBE
from anchorscope.draw.facets import Draw, draw_marks, entry, facet, finish, mark_single_points, pandas_frame
from anchorscope.draw.style import AXIS_GREY, DASH_DOTTED, DASHED, GREY, INK, MARKERS, PALE, SOLID, Dashes
from anchorscope.draw.titles import ALL_OTHERS
from anchorscope.draw.view import Tables, View, title

AT_PROBE, CHANCE = "the plain probe's AUC", 0.5
CURVE_METHODS = (PROBE, "mean_logprob", "p_true", "stacked", "mop", "pr")
KIND_DASHES: dict[str, Dashes] = {"output": DASHED, "pathways": DASH_DOTTED}  # of curves, by the kind of method
FEWEST_DRAWN = 5  # answers behind a point that is drawn
METHOD_LINE = 0.06  # of the style's row height, for the name of a method
RELIABILITY, RISK = "reliability", "risk"
CURVE_PANELS = {  # table, how many answers are behind a point, and its place
    RELIABILITY: ("reliability", "n", "p", "hallucinated_share"),
    RISK: ("coverage", "kept", "coverage", "risk"),
}
X_LABELS = "P(hallucinated), %", "answers kept, %"


def draw_detection(tables: Tables, view: View) -> Figure:
    """Draw the AUC of every method with its interval."""
    interval = {"value": "auc", "low": "auc_low", "high": "auc_high"}
    rows = view.select(tables["detection"]).with_columns(**interval, marker=pl.lit("o"), hollow=False)
    palette = view.dataset_palette

    def draw(panel: Axes, panel_rows: pl.DataFrame) -> None:
        draw_marks(panel, panel_rows, palette)
        for auc in panel_rows.filter(method=METHOD_TITLES[PROBE])["value"]:
            panel.axvline(auc, color=GREY, linestyle="--", linewidth=0.8, zorder=0)

    heading = "how well each method tells hallucinated from right answers, out of fold, with 95 % intervals"
    entries = [entry("chance", AXIS_GREY, dashes=SOLID), entry(AT_PROBE, GREY, dashes=DASHED)]
    return finish(_draw_by_method(rows, view, draw), view, heading, entries)


def _draw_by_method(rows: pl.DataFrame, view: View, draw: Draw) -> Figure:
    """Draw a row of panels for each model and a column for each dataset, with the methods at the y axis."""
    titles = titles_below_kinds(set(rows["method"]))
    names = list(titles.values())
    rows = title(rows, "method", titles).with_columns(place=-pl.col("method").to_physical().cast(pl.Int32))

    def draw_named(panel: Axes, panel_rows: pl.DataFrame) -> None:
        draw(panel, panel_rows)
        panel.set_yticks(range(0, -len(names), -1), names)
        for name, label in zip(titles, panel.get_yticklabels(), strict=False):  # a panel on the right has none
            label.set_fontweight("bold" if name in METHOD_KINDS else "normal")
        panel.set_ylim(0.3 - len(names), 0.7)
        panel.grid(False, axis="y")
        panel.axvline(CHANCE, color=AXIS_GREY, linewidth=0.8, zorder=0)
        panel.xaxis.set_major_locator(MaxNLocator(nbins=3, steps=[1, 2, 5, 10]))

    height = max(0.8, METHOD_LINE * len(names))
    return facet(rows, view, draw_named, column="dataset", row=["model"], labels=("AUC", ""), height=height)


def titles_below_kinds(methods: Collection[str]) -> dict[str, str]:
    """Return the titles of methods in order, those of a kind below the title of the kind."""
    titles: dict[str, str] = {}
    for kind, kind_title in METHOD_KINDS.items():
        of_kind = {name: method.title for name, method in METHODS.items() if method.kind == kind and name in methods}
        titles |= {kind: kind_title, **of_kind} if of_kind else {}
    return titles


def draw_transfer(tables: Tables, view: View) -> Figure:
    """Draw the AUC of trained methods on each dataset after training on it, on each other one, and on all others."""
    table = view.select(tables["transfer"].filter(pl.col("method").is_in(LEARNT)))
    rows = title(table.drop_nulls("auc"), "trained_on", {**view.datasets, OTHERS: ALL_OTHERS})
    palette = {**view.dataset_palette, ALL_OTHERS: INK}
    markers = {**dict(zip(palette, cycle(MARKERS), strict=False)), ALL_OTHERS: "|"}
    source = pl.col("trained_on").cast(pl.String)
    hollow = (source != pl.col("dataset").cast(pl.String)) & (source != ALL_OTHERS)
    rows = rows.with_columns(value="auc", marker=source.replace_strict(markers), hollow=hollow)

    def draw(panel: Axes, panel_rows: pl.DataFrame) -> None:
        dataset = panel_rows["dataset"][0]
        both = panel_rows.filter(trained_on=dataset).join(panel_rows.filter(trained_on=ALL_OTHERS), on="place")
        panel.hlines(both["place"], both["value"], both["value_right"], color=PALE, zorder=0)
        draw_marks(panel, panel_rows, palette, hue="trained_on")

    heading = "what a method loses, tested on the dataset above, when it was trained on others"
    if table["dataset"].n_unique() == 1:
        heading += "; one dataset: there is nothing to carry over"
    if table["auc"].null_count():
        heading += "; no mark: the datasets share too much to learn from one for the other"
    trained = [name for name in palette if name in set(rows["trained_on"])]
    entries = [entry(f"trained on {name}", palette[name], marker=markers[name], hollow=True) for name in trained]
    entries.append(entry("filled: on the same dataset", marker="o"))
    return finish(_draw_by_method(rows, view, draw), view, heading, entries)


def draw_reliability(tables: Tables, view: View) -> Figure:
    """Draw whether probabilities are what they say, and how many hallucinations are left when doubtful answers go."""
    names = {name: METHOD_TITLES[name] for name in CURVE_METHODS}
    palette = {**view.palette(list(names.values())), METHOD_TITLES[PROBE]: INK}
    dashes = {names[name]: KIND_DASHES.get(METHODS[name].kind, SOLID) for name in CURVE_METHODS}
    parts = []
    for panel, (table, count, x, y) in CURVE_PANELS.items():
        drawn = tables[table].filter(pl.col(count) >= FEWEST_DRAWN, pl.col("method").is_in(CURVE_METHODS))
        parts.append(drawn.select("model", "dataset", "method", x=x, y=y, panel=pl.lit(panel)))
    rows = view.with_titles(pl.concat(parts, how="vertical_relaxed")).with_columns(pl.col("x", "y") * 100)
    rows = title(title(rows, "method", names), "panel", {panel: panel for panel in CURVE_PANELS})
    look: dict[str, Any] = {"palette": palette, "dashes": dashes, "estimator": None, "legend": False}

    def draw(panel: Axes, panel_rows: pl.DataFrame) -> None:
        sns.lineplot(pandas_frame(panel_rows), x="x", y="y", hue="method", style="method", **look, ax=panel)
        mark_single_points(panel)
        panel.set_xlim(-4, 104)
        if panel_rows["panel"][0] == RELIABILITY:
            panel.axline((0, 0), (100, 100), color=AXIS_GREY, linewidth=0.8, zorder=0)
            panel.set_ylim(-4, 104)

    labels = "", "hallucinated, %"
    figure = facet(rows, view, draw, column="panel", row=["model", "dataset"], labels=labels, height=0.7, share="none")
    for axes, label in zip(figure.axes[-2:], X_LABELS, strict=True):
        axes.set_xlabel(label)
    heading = (
        "reliability: how many were hallucinated, by what was said; risk: how many are, among the answers that "
        f"a method doubts least; of at least {FEWEST_DRAWN} answers each"
    )
    shown = [name for name in dashes if name in set(rows["method"])]
    return finish(figure, view, heading, [entry(name, palette[name], dashes=dashes[name]) for name in shown])
