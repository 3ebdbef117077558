"""The figures of the other experiments: both groupings side by side, every dataset in its colour."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anchorscope.draw.facets import curve_figure, draw_marks, entry, facet, finish
from anchorscope.draw.style import AXIS_GREY, DASHED, DOTTED, GREY, SOLID, Dashes
from anchorscope.draw.titles import FEW, LAYER, SHUFFLED_GROUPS
from anchorscope.draw.view import Quantity, Tables, View, group_rows, measured, title, with_values
from anchorscope.experiments.names import (
    ACCURACY,
    AUC,
    EQUAL_LOGIT,
    LOGIT,
    LOGPROB,
    MEAN,
    RULE_NAMES,
    SHUFFLED,
    SIGNED,
    STATES,
    SUBJECT,
    UNSURE,
)

RULE_COLUMNS = {rule: rule for rule in RULE_NAMES}
BOTH_RULES = "flip: groups by verdict flip; honest: groups of the other prompt and its own probe"
Q, A, GAP, EQUAL_GAP = "Q", "A", "Q − A", "Q − A at equal clean logit"
# Title, anchor, stratum and shape; the lower ones of each dataset are hollow.
MARKS = [
    (Q, "question", "all", "o", False),
    (A, "answer", "all", "o", True),
    (GAP, "gap", "all", "D", False),
    (EQUAL_GAP, "gap", EQUAL_LOGIT, "D", True),
]
# What the model knows, or does, of each group's questions: the title of a row, the measure and the marks.
KNOWN = [
    ("right answers, %", ACCURACY, [Q, A]),
    ("right answers, Q − A, points", ACCURACY, [GAP, EQUAL_GAP]),
    ('"I don\'t know", %', UNSURE, [Q, A]),
    ("log probability", LOGPROB, [Q, A]),
    ("log₁₀ popularity", SUBJECT, [Q, A]),
    ("log₁₀ popularity, Q − A", SUBJECT, [GAP, EQUAL_GAP]),
]
APART = 0.18  # of a dataset's line: how far its two marks lie from the middle
TWIN = "twin"
FLOW_LINES: dict[str, tuple[str, Dashes]] = {
    "exact": ("exact question words", SOLID),
    "random": ("as many other words", DASHED),
    TWIN: ("exact question words, random weights", DOTTED),
}
SMOOTHING = 0.6  # of the usual bandwidth, which is meant for one peak and here would be that of twice the spread


def draw_patching(tables: Tables, view: View) -> Figure:
    """Draw how often verdicts flip when the exact words are replaced, and below, when other words are."""
    conditions = {"patch_question": "exact words", "patch_random": "other words"}
    heading = "how often verdicts flip when words of the question are replaced"
    return _draw_groups(tables["patching"].filter(measure="flips"), view, conditions, "flipped, %", heading)


def draw_answer_only(tables: Tables, view: View) -> Figure:
    """Draw how far confidence moves without the question, and below, after another one."""
    conditions = {"answer_only": "answer alone", "answer_after_other": "after another question"}
    heading = "how far confidence moves without the question, and after another one"
    return _draw_groups(tables["answer_only"].filter(measure="delta_p"), view, conditions, "ΔP", heading)


def _draw_groups(table: pl.DataFrame, view: View, conditions: Mapping[str, str], ylabel: str, heading: str) -> Figure:
    """Draw both groups of every dataset by layer, a row of panels for each condition."""
    rows = _by_layer(table.filter(stratum="all").with_columns(sure=pl.col("n") >= FEW), view)
    rows = title(group_rows(rows, Quantity(ylabel, "value", "low", "high")), "condition", conditions)
    return curve_figure(
        rows,
        view,
        f"{heading}; {BOTH_RULES}",
        column="rule",
        row=["model", "condition"],
        labels=(LAYER, ylabel),
        height=0.85,
    )


def _by_layer(table: pl.DataFrame, view: View) -> pl.DataFrame:
    """Return the estimates at single layers under both rules."""
    return title(view.select(table), "rule", RULE_COLUMNS).drop_nulls(["layer", "value"])


def draw_awareness(tables: Tables, view: View) -> Figure:
    """Draw how well clean states tell the group, and how much better than clean logits do."""
    is_auc, is_shuffled = pl.col("measure") == AUC, pl.col("condition") == SHUFFLED
    estimates = _by_layer(tables["awareness"], view).filter(~is_auc | is_shuffled | (pl.col("condition") == STATES))
    rows = with_values(estimates, "value", "low", "high").with_columns(
        panel=pl.when(is_auc).then(pl.lit(AUC)).otherwise("condition"),
        level=pl.when(is_auc).then(50).otherwise(0),
        line=pl.when(is_shuffled).then(pl.lit(SHUFFLED_GROUPS)).otherwise("line"),
        low=pl.when(~is_shuffled).then("low"),
        sure=True,
    )
    panels = {AUC: "AUC of states, %", SIGNED: "states − logit, points", LOGIT: "states − logit and size, points"}
    heading = (
        "how well probes tell an example's group from its clean states; below, by how much better than from "
        f"its clean logit, and from the logit and its size (above 0: states tell more); {BOTH_RULES}"
    )
    return curve_figure(title(rows, "panel", panels), view, heading, column="rule", row=["model", "panel"], height=0.85)


def draw_boundary(tables: Tables, view: View) -> Figure:
    """Draw what the model knows of each group's questions, at the reference layer, over all answers."""
    reference = view.select(tables["layers"]).filter("is_reference", intervention="clean")
    estimates = title(view.select(tables["boundary"]), "rule", RULE_COLUMNS)
    estimates = estimates.join(reference.select("model", "dataset", "layer"), on=["model", "dataset", "layer"])
    marks = pl.DataFrame(MARKS, ["mark", "anchor", "stratum", "marker", "hollow"], orient="row")
    known = pl.DataFrame(KNOWN, ["known", "measure", "mark"], orient="row").explode("mark").join(marks, on="mark")
    rows = estimates.join(known, on=["measure", "anchor", "stratum"])
    rows = title(rows, "known", measured(rows, "known", {known: known for known, *_ in KNOWN}))
    palette = view.dataset_palette
    figure = facet(
        rows,
        view,
        lambda panel, panel_rows: _draw_known(panel, panel_rows, palette),
        column="rule",
        row=["model", "known"],
        labels=("", ""),
        height=0.5,
    )
    entries = [entry(mark, marker=marker, hollow=hollow) for mark, _, _, marker, hollow in MARKS]
    heading = f"what the model knows of each group's questions, at the reference layer, over all answers; {BOTH_RULES}"
    return finish(figure, view, heading, entries)


def _draw_known(panel: Axes, rows: pl.DataFrame, palette: Mapping[str, str]) -> None:
    """Draw two marks with their intervals for each dataset, the upper filled, the lower hollow; or a reason."""
    offset = pl.when("hollow").then(-APART).otherwise(APART)
    known = rows.drop_nulls(["value", "low", "high"]).with_columns(place=offset - pl.col("dataset").to_physical())
    draw_marks(panel, known, palette)
    for number, name in enumerate(palette):
        if name not in set(known["dataset"]):
            reason = "too few" if name in set(rows["dataset"]) else "no estimate"
            panel.text(0.5, -number, reason, transform=panel.get_yaxis_transform(), ha="center", color=AXIS_GREY)
    panel.set_yticks(range(0, -len(palette), -1), list(palette))
    panel.set_ylim(0.4 - len(palette), 0.6)
    panel.grid(False, axis="y")
    if GAP in set(rows["mark"]):
        panel.axvline(0, color=GREY, linewidth=0.8, zorder=0)


def draw_saliency(tables: Tables, view: View) -> Figure:
    """Draw how the flow from the question to the answer is spread over examples, beside other flows."""
    samples = tables["saliency"].filter(measure=MEAN, stratum="all")
    models = view.select(samples).with_columns(flow="condition")
    twins = view.random_twins(samples.filter(condition="exact")).with_columns(flow=pl.lit(TWIN))
    rows = pl.concat([models, twins])
    palette = view.dataset_palette
    figure = facet(
        rows,
        view,
        lambda panel, panel_rows: _draw_densities(panel, panel_rows, palette),
        row=["dataset"],
        labels=("saliency, mean = 1", ""),
        height=0.55,
    )
    shown = set(rows["flow"])
    entries = [entry(name, dashes=dashes) for flow, (name, dashes) in FLOW_LINES.items() if flow in shown]
    heading = (
        "how attention times gradient, from words to the answer, is spread over examples; at the reference layer, one "
        "density per kind of flow"
    )
    return finish(figure, view, heading, entries)


def _draw_densities(panel: Axes, rows: pl.DataFrame, palette: Mapping[str, str]) -> None:
    """Draw the density of each flow's sample, relative to its mean, up to where nearly all values lie."""
    panel.set_yticks([])
    for dataset, flow, sample in rows.select("dataset", "flow", "sample").iter_rows():
        values = np.asarray(sample) / max(np.mean(sample), np.finfo(float).tiny)
        mirrored = np.concatenate([values, -values])  # no density is lost below zero
        ends = 0, 1.2 * np.quantile(values, 0.99)
        colour = GREY if flow == TWIN else palette[dataset]
        line: Any = 0, FLOW_LINES[flow][1] or None
        sns.kdeplot(x=mirrored, bw_adjust=SMOOTHING, clip=ends, color=colour, linestyle=line, ax=panel)
