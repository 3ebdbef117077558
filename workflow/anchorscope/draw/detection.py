"""The figures of detection: every method's AUC, what carries over to other datasets, reliability and risk."""

import textwrap
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, MultipleLocator

from anchorscope.detect.methods import LEARNT, METHOD_KINDS, METHOD_TITLES, METHODS, OTHERS, PROBE
from anchorscope.draw.blocks import draw_as_high, draw_blocks, mark, name_block
from anchorscope.draw.panels import GREY, Draw, Series, Strip, Tables, View, grid, name_panel

AT_PROBE, CHANCE = "the plain probe's AUC", 0.5
CURVE_METHODS = ("mean_logprob", "p_true", PROBE, "stacked", "mop", "pr")
FEWEST_DRAWN = 5  # answers behind a point that is drawn
LINE = 0.038  # of the style's row height, for the name of a method, or a line of what its kind is called
LOWEST_TOP = 8.0  # lines of a panel, at least
HEADING = 20  # letters in a line of what a kind is called
SAID, KEPT = "P(hallucinated), %", "answers kept, %"
NAMES, NARROW = 1.0, 0.6  # inches that the methods' names take, and a panel


@dataclass(frozen=True)
class MethodPlaces:
    """Where methods lie on the y axis, each kind below what it is called."""

    methods: dict[str, float]
    kinds: dict[str, float]  # by title
    top: float

    def name(self, panel: Axes) -> None:
        """Names at the y axis; those of kinds are bold."""
        names = [METHOD_TITLES[name] for name in self.methods]
        panel.set_yticks([*self.kinds.values(), *self.methods.values()], [*self.kinds, *names])
        for label in panel.get_yticklabels()[: len(self.kinds)]:
            label.set_fontweight("bold")
        panel.set_ylim(0, self.top)
        panel.grid(False, axis="y")


def places_of(methods: Collection[str]) -> MethodPlaces:
    """The methods in their order from top to bottom."""
    heights: dict[str, float] = {}
    kinds: dict[str, float] = {}
    top = 0.4
    for kind, title in reversed(METHOD_KINDS.items()):
        mine = [name for name, method in METHODS.items() if method.kind == kind and name in methods]
        for name in reversed(mine):
            heights[name] = top + 0.5
            top += 1
        if mine:
            lines = textwrap.wrap(title, HEADING)
            kinds["\n".join(lines)] = top + len(lines) / 2
            top += len(lines) + 0.4
    return MethodPlaces(heights, kinds, max(top, LOWEST_TOP))


def draw_detection(tables: Tables, view: View) -> Figure:
    """The AUC of every method with its interval."""
    rows = view.of(tables["detection"])
    places = places_of(set(rows["method"]))

    def draw(panel: Axes, cell: Mapping[str, Any]) -> None:
        mine, colour = rows.filter(model=cell["model"], dataset=cell["dataset"]), cell["look"]["color"]
        heights = [places.methods[method] for method in mine["method"]]
        panel.hlines(heights, mine["auc_low"], mine["auc_high"], color=colour)
        panel.plot(mine["auc"], heights, color=colour, marker="o", linestyle="")
        for area in mine.filter(method=PROBE)["auc"]:
            panel.axvline(area, color=GREY, linestyle="--", linewidth=0.8, zorder=0, label=AT_PROBE)

    heading = "how well each method tells hallucinated from right answers, out of fold, with 95 % intervals"
    return _by_method(view, tables["detection"], places, draw, heading=heading)


def _by_method(view: View, table: pl.DataFrame, places: MethodPlaces, draw: Draw, *, heading: str) -> Figure:
    """A figure with the methods at the y axis, and a panel for each dataset: models side by side where they fit."""
    models = view.by_model(table)
    beside = min(len(models), max(1, int((view.style.width - NAMES) / (NARROW * len(view.datasets)))))
    columns: list[Strip] = [
        ("", {**dataset, "look": look, "title": title, "beside": number})
        for number in range(beside)
        for dataset, look, title in view.one_per_dataset()
    ]
    ticks = max(2, int(3 * (view.style.width - NAMES) / len(columns)))

    def draw_named(panel: Axes, cell: dict[str, Any]) -> None:
        number = cell["start"] + cell["beside"]
        panel.set_visible(number < len(models))
        if number < len(models):
            title, model = models[number]
            draw(panel, {**cell, **model})
            places.name(panel)
            panel.axvline(CHANCE, color="0.6", linewidth=0.8, zorder=0, label="chance")
            panel.xaxis.set_major_locator(MaxNLocator(nbins=ticks, steps=[1, 2, 5, 10]))
            panel.xaxis.set_minor_locator(MultipleLocator(0.1))
            panel.grid(True, axis="x", which="both")
            panel.tick_params(labelbottom=True)
            panel.set_xlabel("AUC")
            name_panel(panel, cell["title"], len(columns) + 2)  # names of methods take about as much as two panels
            if cell["dataset"] == list(view.datasets)[-1]:
                last = panel.figure.axes.index(panel) + 1
                name_block(panel.figure.axes[last - len(view.datasets) : last], title)

    return draw_as_high(
        view,
        LINE * places.top,
        lambda height: grid(
            view,
            table,
            [("", {"start": start}) for start in range(0, len(models), beside)],
            draw_named,
            columns=columns,
            heading=heading,
            below="",
            level=None,
            first_height=height,
            row_height=height,
            sharex=True,
            together=1,
            last=AT_PROBE,
            narrowest=NARROW,
        ),
    )


def draw_transfer(tables: Tables, view: View) -> Figure:
    """The AUC of every trained method on each dataset after training on it, on each other one, and on all others."""
    table = view.of(tables["transfer"]).filter(pl.col("method").is_in(LEARNT))
    places = places_of(set(table["method"]))
    known = table.drop_nulls("auc")
    heights = pl.Series("place", [places.methods[method] for method in known["method"]], dtype=pl.Float64)
    known = known.with_columns(heights)

    def draw(panel: Axes, cell: Mapping[str, Any]) -> None:
        mine = known.filter(model=cell["model"], dataset=cell["dataset"])
        own, others = (mine.filter(trained_on=one) for one in (cell["dataset"], OTHERS))
        both = own.join(others, on="place")
        panel.hlines(both["place"], both["auc"], both["auc_right"], color="0.75", zorder=0)
        for wanted, look, title in view.one_per_dataset():
            some, colour, shape = mine.filter(trained_on=wanted["dataset"]), look["color"], look["marker"]
            filled = wanted["dataset"] == cell["dataset"]
            panel.plot(some["auc"], some["place"], **mark(colour, shape, filled=filled))
            panel.plot([], [], **mark(colour, shape, filled=False), label=f"trained on {title}")
        panel.plot([], [], **mark(GREY, "o", filled=True), label="filled: on the same dataset")
        label = "trained on all others" if len(others) else None
        panel.plot(others["auc"], others["place"], color="0.15", marker="|", markersize=5, linestyle="", label=label)

    alone = "" if table["dataset"].n_unique() > 1 else "\none dataset: there is nothing to carry over"
    shared = "\nno mark: the datasets share too much to learn from one for the other"
    blank = shared if table["auc"].null_count() else ""
    heading = f"what a method loses, tested on the dataset above, when it was trained on others{alone}{blank}"
    return _by_method(view, tables["detection"], places, draw, heading=heading)


def draw_reliability(tables: Tables, view: View) -> Figure:
    """Whether probabilities are what they say, and how many hallucinated answers are left when doubtful ones go."""
    bins = view.of(tables["reliability"]).filter(pl.col("n") >= FEWEST_DRAWN, pl.col("method").is_in(CURVE_METHODS))
    kept = view.of(tables["coverage"]).filter(pl.col("kept") >= FEWEST_DRAWN, pl.col("method").is_in(CURVE_METHODS))
    tables_of = {
        SAID: bins.select("model", "dataset", "method", x="p", y="hallucinated_share"),
        KEPT: kept.select("model", "dataset", "method", x="coverage", y="risk"),
    }
    highest = max([1, *(105 * kept["risk"])])

    def draw(panel: Axes, cell: dict[str, Any]) -> None:
        said = cell["shown"] == SAID
        mine = tables_of[cell["shown"]].filter(model=cell["model"], dataset=cell["dataset"])
        for wanted, look, title in _curve_looks(view):
            some, look = mine.filter(**wanted), {**look, "marker": look["marker"] if said else ""}
            panel.plot(100 * some["x"], 100 * some["y"], **look, label=title if len(some) else None)
        if said and len(mine):
            panel.plot([0, 100], [0, 100], color="0.6", linewidth=0.8, marker="", zorder=0)
        panel.set(xlim=(-4, 104), ylim=(-4, 104) if said else (-0.04 * highest, highest))

    return draw_blocks(
        view,
        tables["detection"],
        [("reliability", {"shown": SAID, "below": SAID}), ("risk", {"shown": KEPT, "below": KEPT})],
        view.by_dataset("{}, hallucinated,\u00a0%"),
        draw,
        heading="reliability: how many were hallucinated, by what was said; risk: how many are, among the answers that "
        f"a method doubts least; of at least {FEWEST_DRAWN} answers each",
        level=None,
        sharey=False,
        row_height=0.5,
        together=1,
    )


def _curve_looks(view: View) -> list[Series]:
    """The plain probe is strong and dark; what the model itself says is dashed."""
    others = view.series("method", {name: METHOD_TITLES[name] for name in CURVE_METHODS if name != PROBE})
    lines = {"output": "--", "pathways": "-."}
    curves = [
        (wanted, {**look, "linestyle": lines.get(METHODS[wanted["method"]].kind, "-"), "linewidth": 0.8}, title)
        for wanted, look, title in others
    ]
    plain = {"color": "0.15", "linestyle": "-", "marker": "o"}
    return [({"method": PROBE}, plain, METHOD_TITLES[PROBE]), *curves]
