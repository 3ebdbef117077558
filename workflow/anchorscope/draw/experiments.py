"""The figures of the other experiments: both groupings side by side, a row of panels for each dataset."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anchorscope.draw.panels import (
    ANCHOR_LETTERS,
    FEW,
    Draw,
    Strip,
    Tables,
    View,
    draw_curves,
    grid,
    looks,
)
from anchorscope.experiments.names import ACCURACY, EQUAL_LOGIT, LOGPROB, MEAN, RULE_NAMES, SUBJECT, UNSURE
from anchorscope.models.manifest import SALMON

AWARENESS_TITLES = {
    "states": "clean states",
    "signed": "clean logit alone",
    "logit": "clean logit and its size",
    "other_prompt": "clean states, group of the other prompt",
    "shuffled": "clean states, shuffled groups",
}
FLOW_TITLES = {"exact": "exact question words", "random": "as many other words"}
SHIFT = 0.2  # of a bar from the middle of its place
BOTH_RULES = "flip: groups by verdict flip; honest: groups of the other prompt and its own probe"
NOTHING = "too few in a group, or not probed"


def draw_patching(tables: Tables, view: View) -> Figure:
    """How often verdicts flip when the exact words are replaced, and when other words are."""
    titles = {"patch_question": "exact words replaced", "patch_random": "other words replaced"}
    return _by_layer(tables["patching"], view, "flips", titles, unit="% flipped")


def draw_answer_only(tables: Tables, view: View) -> Figure:
    """How far confidence moves without the question, and after another one."""
    titles = {"answer_only": "the answer alone", "answer_after_other": "the answer after another question"}
    return _by_layer(tables["answer_only"], view, "delta_p", titles, unit="ΔP")


def _by_layer(table: pl.DataFrame, view: View, measure: str, conditions: Mapping[str, str], unit: str) -> Figure:
    """Both groups by layer under a condition, and lighter under its control."""
    rows = view.of(table).filter(pl.col("layer").is_not_null(), measure=measure, stratum="all").sort("layer")
    (main, title), (control, name_of_control) = conditions.items()

    def draw(panel: Axes, cell: Mapping[str, Any]) -> None:
        mine = rows.filter(condition=main, **cell).with_columns(sure=pl.col("n") >= FEW)
        groups = view.series("anchor", ANCHOR_LETTERS)
        draw_curves(panel, mine, [(anchor, look, f"{letter}, {title}") for anchor, look, letter in groups], "value")
        for anchor, look, letter in groups:
            beside = rows.filter(condition=control, **anchor, **cell)
            if not beside.is_empty():
                lighter = {"color": look["color"], "alpha": 0.6, "linestyle": ":", "marker": ""}
                label = f"{letter}, {name_of_control}"
                panel.plot(beside["layer"], beside["value"].cast(pl.Float64), **lighter, label=label)

    lines = view.by_dataset(f"{{}}, {unit}")
    return _both_rules(view, table, lines, draw, heading=BOTH_RULES)


def draw_awareness(tables: Tables, view: View) -> Figure:
    """How well each reader tells the group."""
    table = tables["awareness"]
    rows = view.of(table).filter(pl.col("layer").is_not_null(), measure="auc").with_columns(sure=pl.lit(True))
    return _both_rules(
        view,
        table,
        view.by_dataset("{}, AUC, %"),
        lambda panel, cell: draw_curves(
            panel, rows.filter(**cell), view.series("condition", AWARENESS_TITLES), "value"
        ),
        heading=f"which group an example is in, told by probes on what they see; {BOTH_RULES}",
        level=50,
        together=1,
    )


def draw_boundary(tables: Tables, view: View) -> Figure:
    """What the model knows of each group's questions, at the reference layer, over all answers."""
    table = tables["boundary"]
    at_reference = view.of(tables["layers"]).filter("is_reference", intervention="clean")
    rows = view.of(table).join(at_reference.select("model", "dataset", "layer"), on=["model", "dataset", "layer"])
    known = rows.drop_nulls(["value", "low", "high"])

    def draw(panel: Axes, cell: dict[str, Any]) -> None:
        pair, places = cell.pop("pair"), cell.pop("places")
        for (name, chosen, look), offset in zip(pair, (-SHIFT, SHIFT), strict=True):
            bars = [known.filter(**place, **chosen, **cell).head(1) for place in places.values()]
            _draw_bars(panel, bars, offset=offset, look=look, label=name)
        names = [place if len(place) <= 24 else f"{place[:23]}…" for place in places]
        panel.set_xticks(range(len(places)), names, rotation=30, ha="right")

    lines = _boundary_lines(rows, view)
    heading = f"at the reference layer, over all answers; {BOTH_RULES}"
    return _both_rules(view, table, lines, draw, heading=heading, below="", sharex=False, sharey="row")


def _boundary_lines(rows: pl.DataFrame, view: View) -> list[Strip]:
    """The rows of panels that have something to show.

    For each, the `pair` of bars side by side (name, rows and look), and the `places` of the bars with their rows.
    """
    first, second, third, fourth = looks(view.style, 4)
    groups = [("Q", {"anchor": "question"}, first), ("A", {"anchor": "answer"}, second)]
    gaps = [
        ("Q − A", {"anchor": "gap", "stratum": "all"}, third),
        ("Q − A at equal clean logit", {"anchor": "gap", "stratum": EQUAL_LOGIT}, fourth),
    ]
    thirds = [name for name in rows["stratum"].unique(maintain_order=True) if name not in ("all", EQUAL_LOGIT)]
    lines: list[Strip] = []
    for title, pair, measure, strata in (
        ("right, %", groups, ACCURACY, ["all"]),
        ("right, Q − A, points", gaps, ACCURACY, ["all"]),
        ("right, %, by popularity", groups, ACCURACY, thirds),
        ('"I don\'t know", %', groups, UNSURE, ["all"]),
        ("log₁₀ popularity", groups, SUBJECT, ["all"]),
        ("log₁₀ popularity, Q − A", gaps, SUBJECT, ["all"]),
        ("log probability", groups, LOGPROB, ["all"]),
    ):
        places = {
            f"{name} {stratum}".removesuffix(" all"): {"dataset": dataset, "measure": measure}
            | ({} if pair is gaps else {"stratum": stratum})
            for dataset, name in view.datasets.items()
            for stratum in strata
            if not rows.filter(dataset=dataset, measure=measure, stratum=stratum).is_empty()
        }
        if places:
            lines.append((title, {"pair": pair, "places": places}))
    return lines


def _draw_bars(panel: Axes, bars: Sequence[pl.DataFrame], offset: float, look: dict, label: str) -> None:
    """Bars with their intervals, each a row or, where there is none, nothing."""
    known = pl.concat([bar.with_columns(place=pl.lit(place + offset)) for place, bar in enumerate(bars)])
    if not known.is_empty():
        places = known["place"]
        panel.bar(places, known["value"], width=1.9 * SHIFT, color=look["color"], label=label, linewidth=0, alpha=0.8)
        panel.vlines(places, known["low"], known["high"], color="0.25", linewidth=1.2)


def draw_saliency(tables: Tables, view: View) -> Figure:
    """How the flow from the question to the answer is spread over examples, beside other flows."""
    table = tables["saliency"]
    every = {**view.models, **{f"{model}{SALMON}": title for model, title in view.models.items()}}
    samples = table.filter(pl.col("model").is_in(list(every)), measure=MEAN, stratum="all")

    def draw(panel: Axes, cell: Mapping[str, Any]) -> None:
        curves = {name: samples.filter(condition=flow, **cell) for flow, name in FLOW_TITLES.items()}
        salmon = {**cell, "model": f"{cell['model']}{SALMON}", "condition": "exact"}
        curves["exact question words, random weights"] = samples.filter(**salmon)
        for (name, row), look in zip(curves.items(), looks(view.style, len(curves)), strict=True):
            if not row.is_empty():
                reach, heights = density(row["sample"][0].to_numpy().astype(np.float64))
                plain = {"color": look["color"], "linestyle": look["linestyle"], "marker": ""}
                panel.plot(reach, heights, **plain, label=name)

    return grid(
        view,
        table,
        view.by_dataset("{}, density"),
        draw,
        heading="attention times gradient, from words to the answer, at the reference layer; one density per kind of "
        "flow",
        below="saliency, relative to its mean",
        row_height=0.6,
        sharex=False,
        sharey=False,
        together=1,
        nothing=NOTHING,
    )


def density(sample: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A smooth density of positive values, relative to their mean, up to where nearly all of them lie."""
    values = sample / max(sample.mean(), np.finfo(float).tiny)
    spread = min(values.std(), (np.quantile(values, 0.75) - np.quantile(values, 0.25)) / 1.34) or 1.0
    width = 0.9 * spread * len(values) ** -0.2  # Silverman's rule
    reach = np.linspace(0, np.quantile(values, 0.99) + 3 * width, 200)
    # What would lie below zero is folded back.
    near = np.exp(-0.5 * ((reach[:, None] - np.concatenate([values, -values])) / width) ** 2)
    return reach, near.sum(1) / (len(values) * width * np.sqrt(2 * np.pi))


def _both_rules(view: View, table: pl.DataFrame, lines: Sequence[Strip], draw: Draw, **options: Any) -> Figure:
    """A figure with a column of panels for each model under each rule."""
    columns = [
        (f"{title}, {rule}", {**model, "rule": rule}) for title, model in view.by_model(table) for rule in RULE_NAMES
    ]
    return grid(view, table, lines, draw, columns=columns, row_height=0.7, nothing=NOTHING, **options)
