"""The figures of detection: every method's AUC, what carries over to other datasets, reliability and risk."""

from collections.abc import Collection
from typing import Any

import polars as pl
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from anchorscope.detect.methods import LEARNT, METHOD_KINDS, METHOD_TITLES, METHODS, OTHERS, PROBE
from anchorscope.draw.facets import Draw, draw_marks, entry, facet, finish, pandas_frame
from anchorscope.draw.style import DASH_DOTTED, DASHED, GREY, INK, LINE, MARKERS, PALE, SOLID, Dashes
from anchorscope.draw.view import Tables, View, measured, title

AT_PROBE, CHANCE = "the plain probe's AUC", 0.5
CURVE_METHODS = (PROBE, "mean_logprob", "p_true", "stacked", "mop", "pr")
KIND_DASHES: dict[str, Dashes] = {"output": DASHED, "pathways": DASH_DOTTED}  # of curves, by the kind of method
FEWEST_DRAWN = 5  # answers behind a point that is drawn
METHOD_LINE = 0.045  # of the style's row height, for the name of a method
RELIABILITY, RISK = "reliability", "risk"
X_LABELS = "P(hallucinated), %", "answers kept, %"


def draw_detection(tables: Tables, view: View) -> Figure:
    """Draw the AUC of every method with its interval."""
    rows = view.select(tables["detection"]).with_columns(value="auc", low="auc_low", high="auc_high")
    palette = view.palette(list(view.datasets.values()))

    def draw(panel: Axes, panel_rows: pl.DataFrame) -> None:
        draw_marks(panel, panel_rows, palette)
        for auc in panel_rows.filter(method=PROBE)["value"]:
            panel.axvline(auc, color=GREY, linestyle="--", linewidth=0.8, zorder=0)

    heading = "how well each method tells hallucinated from right answers, out of fold, with 95 % intervals"
    entries = [entry("chance", LINE, dashes=SOLID), entry(AT_PROBE, GREY, dashes=DASHED)]
    return finish(_draw_by_method(rows, view, draw), view, heading, entries)


def _draw_by_method(rows: pl.DataFrame, view: View, draw: Draw) -> Figure:
    """Draw a row of panels for each model and a column for each dataset, with the methods at the y axis."""
    places = method_places(set(rows["method"]))
    headings = set(METHOD_KINDS.values())
    rows = rows.with_columns(place=pl.col("method").replace_strict(METHOD_TITLES).replace_strict(places))

    def draw_named(panel: Axes, part: pl.DataFrame) -> None:
        draw(panel, part)
        panel.set_yticks(list(places.values()), list(places))
        for label in panel.get_yticklabels():
            label.set_fontweight("bold" if label.get_text() in headings else "normal")
        panel.set_ylim(-0.7, len(places) - 0.3)
        panel.grid(False, axis="y")
        panel.axvline(CHANCE, color=LINE, linewidth=0.8, zorder=0)
        panel.xaxis.set_major_locator(MaxNLocator(nbins=3, steps=[1, 2, 5, 10]))

    height = max(0.6, METHOD_LINE * len(places))
    return facet(rows, view, draw_named, column="dataset", row=["model"], labels=("AUC", ""), height=height)


def method_places(methods: Collection[str]) -> dict[str, int]:
    """Return the places of methods by title on the y axis, from top to bottom, each kind below its own title."""
    names = []
    for kind, kind_title in METHOD_KINDS.items():
        of_kind = [method.title for name, method in METHODS.items() if method.kind == kind and name in methods]
        names += [kind_title, *of_kind] if of_kind else []
    return {name: place for place, name in enumerate(reversed(names))}


def draw_transfer(tables: Tables, view: View) -> Figure:
    """Draw the AUC of trained methods on each dataset after training on it, on each other one, and on all others."""
    table = tables["transfer"].filter(pl.col("method").is_in(LEARNT))
    sources = {**view.datasets, OTHERS: "all others"}
    rows = title(view.select(table).drop_nulls("auc"), "trained_on", sources).with_columns(value="auc")
    palette = {**view.palette(list(view.datasets.values())), sources[OTHERS]: INK}
    markers = dict(zip(palette, MARKERS, strict=False)) | {sources[OTHERS]: "|"}

    def draw(panel: Axes, panel_rows: pl.DataFrame) -> None:
        dataset = panel_rows["dataset"][0]
        by_source = panel_rows.with_columns(pl.col("trained_on").cast(pl.String))
        both = by_source.filter(trained_on=dataset).join(by_source.filter(trained_on=sources[OTHERS]), on="place")
        panel.hlines(both["place"], both["value"], both["value_right"], color=PALE, zorder=0)
        for source, marker in markers.items():
            marks = by_source.filter(trained_on=source)
            hollow = source not in (dataset, sources[OTHERS])
            draw_marks(panel, marks, palette, hue="trained_on", marker=marker, hollow=hollow)

    alone = "" if table["dataset"].n_unique() > 1 else "; one dataset: there is nothing to carry over"
    is_shared = table["auc"].null_count() > 0
    shared = "; no mark: the datasets share too much to learn from one for the other" if is_shared else ""
    heading = f"what a method loses, tested on the dataset above, when it was trained on others{alone}{shared}"
    trained = [source for source in palette if source in set(rows["trained_on"])]
    entries = [
        entry(f"trained on {source}", palette[source], marker=markers[source], hollow=True) for source in trained
    ]
    entries.append(entry("filled: on the same dataset", GREY, marker="o"))
    return finish(_draw_by_method(rows, view, draw), view, heading, entries)


def draw_reliability(tables: Tables, view: View) -> Figure:
    """Draw whether probabilities are what they say, and how many hallucinations are left when doubtful answers go."""
    names = {name: METHOD_TITLES[name] for name in CURVE_METHODS}
    bins = tables["reliability"].filter(pl.col("n") >= FEWEST_DRAWN)
    kept = tables["coverage"].filter(pl.col("kept") >= FEWEST_DRAWN)
    panels = pl.Enum([RELIABILITY, RISK])
    keys = ["model", "dataset", "method"]
    reliability = bins.select(*keys, x="p", y="hallucinated_share", panel=pl.lit(RELIABILITY, panels))
    risk = kept.select(*keys, x="coverage", y="risk", panel=pl.lit(RISK, panels))
    rows = pl.concat([reliability, risk], how="vertical_relaxed").with_columns(pl.col("x", "y") * 100)
    others = view.palette(list(names.values())[1:])
    palette = {names[PROBE]: INK, **others}
    dashes = {names[name]: KIND_DASHES.get(METHODS[name].kind, SOLID) for name in names}

    def draw(panel: Axes, panel_rows: pl.DataFrame) -> None:
        look: dict[str, Any] = {
            "hue": "method",
            "style": "method",
            "palette": palette,
            "dashes": dashes,
            "markers": False,
        }
        sns.lineplot(pandas_frame(panel_rows), x="x", y="y", estimator=None, legend=False, ax=panel, **look)
        panel.set(xlim=(-4, 104))
        if panel_rows["panel"][0] == RELIABILITY:
            panel.axline((0, 0), (100, 100), color=LINE, linewidth=0.8, zorder=0)
            panel.set(ylim=(-4, 104))

    figure = facet(
        title(view.with_titles(rows), "method", names),
        view,
        draw,
        column="panel",
        row=["model", "dataset"],
        labels=("", "hallucinated, %"),
        height=0.6,
        share="none",
    )
    for panel, label in zip(figure.axes[-2:], X_LABELS, strict=True):
        panel.set_xlabel(label)
    heading = (
        "reliability: how many were hallucinated, by what was said; risk: how many are, among the answers that "
        f"a method doubts least; of at least {FEWEST_DRAWN} answers each"
    )
    drawn = measured(rows, "method", names).values()
    entries = [entry(name, palette[name], dashes=dashes[name]) for name in drawn]
    return finish(figure, view, heading, entries)
