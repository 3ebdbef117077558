"""The figures of the other experiments: under both groupings, every dataset in its colour."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anchorscope.draw.blocks import draw_as_high, draw_blocks, mark, name_block
from anchorscope.draw.panels import (
    FEW,
    GREY,
    NARROWEST,
    Draw,
    Series,
    Strip,
    Tables,
    View,
    draw_curves,
    grid,
    name_lines,
)
from anchorscope.experiments.names import (
    ACCURACY,
    AUC,
    EQUAL_LOGIT,
    GAIN,
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
from anchorscope.models.manifest import SALMON

SHUFFLED_GROUPS = "shuffled groups"
BOTH_RULES = "flip: groups by verdict flip; honest: groups of the other prompt and its own probe"
NOTHING = "too few\nin a group,\nor not probed"
BOTH_GROUPS = {"Q": {"anchor": "question", "stratum": "all"}, "A": {"anchor": "answer", "stratum": "all"}}
GAPS = {
    "Q − A": {"anchor": "gap", "stratum": "all"},
    "Q − A at equal clean logit": {"anchor": "gap", "stratum": EQUAL_LOGIT},
}
APART = 0.18  # of a dataset's line: how far its two marks lie from the middle
LINE = 0.05  # of the style's row height, for a dataset


@dataclass(frozen=True)
class Known:
    """Something that the model knows, or does, of each group's questions."""

    title: str  # of the x axis
    measure: str
    marks: Mapping[str, dict[str, str]]  # the two of each dataset: rows by label


KNOWN = (
    Known("right answers, %", ACCURACY, BOTH_GROUPS),
    Known("right answers,\nQ − A, points", ACCURACY, GAPS),
    Known('"I don\'t know", %', UNSURE, BOTH_GROUPS),
    Known("log probability", LOGPROB, BOTH_GROUPS),
    Known("log₁₀ popularity", SUBJECT, BOTH_GROUPS),
    Known("log₁₀ popularity,\nQ − A", SUBJECT, GAPS),
)


def draw_patching(tables: Tables, view: View) -> Figure:
    """How often verdicts flip when the exact words are replaced, and below, when other words are."""
    lines = {"patch_question": "exact words: flipped,\u00a0%", "patch_random": "other words: flipped,\u00a0%"}
    heading = "how often verdicts flip when words of the question are replaced"
    return _by_layer(tables["patching"], view, "flips", lines, heading)


def draw_answer_only(tables: Tables, view: View) -> Figure:
    """How far confidence moves without the question, and below, after another one."""
    lines = {"answer_only": "ΔP, answer alone", "answer_after_other": "ΔP, after another question"}
    heading = "how far confidence moves without the question, and after another one"
    return _by_layer(tables["answer_only"], view, "delta_p", lines, heading)


def _by_layer(table: pl.DataFrame, view: View, measure: str, conditions: Mapping[str, str], heading: str) -> Figure:
    """Both groups of every dataset by layer, a row of panels for each condition."""
    rows = view.of(table).filter(pl.col("layer").is_not_null(), measure=measure, stratum="all")
    rows = rows.with_columns(sure=pl.col("n") >= FEW)
    return _both_rules(
        view,
        table,
        [(title, {"condition": condition}) for condition, title in conditions.items()],
        lambda panel, cell: draw_curves(panel, rows.filter(**cell), view.both_anchors(), "value"),
        heading=f"{heading}; {BOTH_RULES}",
        row_height=0.6,
    )


def draw_awareness(tables: Tables, view: View) -> Figure:
    """How well clean states tell the group, and how much better than clean logits do."""
    table = tables["awareness"]
    rows = view.of(table).filter(pl.col("layer").is_not_null()).with_columns(sure=pl.lit(True))
    shuffled = rows.filter(measure=AUC, condition=SHUFFLED).sort("layer")
    lines: list[Strip] = [
        ("AUC of states, %", {"measure": AUC, "condition": STATES}),
        ("states − logit, points", {"measure": GAIN, "condition": SIGNED}),
        ("states − logit and size, points", {"measure": GAIN, "condition": LOGIT}),
    ]

    def draw(panel: Axes, cell: Mapping[str, Any]) -> None:
        draw_curves(panel, rows.filter(**cell), view.one_per_dataset(), "value")
        if cell["measure"] == AUC:
            for wanted, look, _ in view.one_per_dataset():
                control = shuffled.filter(model=cell["model"], rule=cell["rule"], **wanted)
                dotted = {"color": look["color"], "linestyle": ":", "linewidth": 0.8, "marker": ""}
                panel.plot(control["layer"], control["value"], **dotted)
            name_lines(panel, SHUFFLED_GROUPS, ":")
        also = [50, *shuffled["value"].drop_nulls()] if cell["measure"] == AUC else [0]
        panel.set(ylim=_reach(rows.filter(measure=cell["measure"], condition=cell["condition"]), *also))
        panel.axhline(also[0], color=GREY, linewidth=0.8, zorder=0)

    return _both_rules(
        view,
        table,
        lines,
        draw,
        heading="how well probes tell an example's group from its clean states; below, by how much better than from "
        f"its clean logit, and from the logit and its size (above 0: states tell more); {BOTH_RULES}",
        level=None,
        sharey="row",
        row_height=0.6,
        together=1,
        last=SHUFFLED_GROUPS,
    )


def _reach(rows: pl.DataFrame, *also: float) -> tuple[float | None, float | None]:
    """The ends of an axis that holds all intervals, where there are any."""
    ends = [*rows["low"].drop_nulls(), *rows["high"].drop_nulls()]
    if not ends:
        return None, None
    low, high = min(*ends, *also), max(*ends, *also)
    margin = 0.05 * (high - low)
    return low - margin, high + margin


def draw_boundary(tables: Tables, view: View) -> Figure:
    """What the model knows of each group's questions, at the reference layer, over all answers."""
    table = tables["boundary"]
    at_reference = view.of(tables["layers"]).filter("is_reference", intervention="clean")
    rows = view.of(table).join(at_reference.select("model", "dataset", "layer"), on=["model", "dataset", "layer"])
    shown = [one for one in KNOWN if one is KNOWN[0] or one.measure in set(rows["measure"])]
    deep = ceil(len(shown) * NARROWEST / view.style.width)  # rows of panels for each model and rule
    across = ceil(len(shown) / deep)
    blocks = [
        (f"{title}, {rule}", {**model, "rule": rule}) for title, model in view.by_model(table) for rule in RULE_NAMES
    ]

    def draw(panel: Axes, cell: dict[str, Any]) -> None:
        title, start, column = (cell.pop(name) for name in ("title", "start", "column"))
        panel.set_visible(start + column < len(shown))
        if start + column < len(shown):
            _draw_known(panel, rows, shown[start + column], cell, view.one_per_dataset())
        if start + column == 0:
            name_block([panel], title)
        if deep == 1 and cell != blocks[-1][1]:  # the same x axes as below
            panel.set_xlabel("")
            panel.tick_params(labelbottom=False)

    return draw_as_high(
        view,
        LINE * len(view.datasets),
        lambda height: grid(
            view,
            table,
            [
                ("", {**cell, "title": title, "start": at})
                for title, cell in blocks
                for at in range(0, len(shown), across)
            ],
            draw,
            columns=[("", {"column": column}) for column in range(across)],
            heading="what the model knows of each group's questions, at the reference layer, over all answers; "
            f"{BOTH_RULES}",
            below="",
            level=None,
            ylim=(0.4, len(view.datasets) + 0.6),
            first_height=height,
            row_height=height,
            sharex=False,
            nothing="",
        ),
    )


def _draw_known(panel: Axes, rows: pl.DataFrame, one: Known, cell: Mapping[str, str], series: Sequence[Series]) -> None:
    """Two marks with their intervals for each dataset, the upper filled, the lower hollow; else why there are none."""
    known = rows.drop_nulls(["value", "low", "high"]).filter(measure=one.measure)
    every = [known.filter(**chosen) for chosen in one.marks.values()]
    shape, places = "D" if one.marks is GAPS else "o", range(len(series), 0, -1)
    for (wanted, look, _), place in zip(series, places, strict=True):
        pair = [some.filter(**wanted, **cell) for some in every]
        for some, offset, filled in zip(pair, (APART, -APART), (True, False), strict=True):
            heights = [place + offset] * len(some)
            panel.hlines(heights, some["low"], some["high"], color=look["color"])
            panel.plot(some["value"], heights, **mark(look["color"], shape, filled=filled))
        if not any(map(len, pair)):
            why, middle = _why_nothing(rows.filter(**wanted, **cell), one), panel.get_yaxis_transform()
            panel.text(0.5, place, why, transform=middle, ha="center", va="center", color="0.6", size="small")
    for label, filled in zip(one.marks, (True, False), strict=True):
        panel.plot([], [], **mark(GREY, shape, filled=filled), label=label)
    panel.set_yticks(places, [title for *_, title in series])
    panel.set(xlabel=one.title, xlim=_reach(pl.concat(every), *([0] if one.marks is GAPS else [])))
    panel.grid(False, axis="y")
    if one.marks is GAPS:
        panel.axvline(0, color=GREY, linewidth=0.8, zorder=0)


def _why_nothing(rows: pl.DataFrame, one: Known) -> str:
    if rows.is_empty():
        return "not probed"
    return "too few" if one.measure in set(rows["measure"]) else "not known"


def draw_saliency(tables: Tables, view: View) -> Figure:
    """How the flow from the question to the answer is spread over examples, beside other flows."""
    table = tables["saliency"]
    samples = table.filter(measure=MEAN, stratum="all")

    def draw(panel: Axes, cell: Mapping[str, Any]) -> None:
        model, own = cell["model"], cell["look"]["color"]
        for label, whose, flow, colour, line in (
            ("exact question words", model, "exact", own, "-"),
            ("as many other words", model, "random", own, "--"),
            ("exact question words, random weights", f"{model}{SALMON}", "exact", GREY, ":"),
        ):
            for sample in samples.filter(dataset=cell["dataset"], model=whose, condition=flow)["sample"]:
                panel.plot(*density(sample.to_numpy().astype(np.float64)), color=colour, linestyle=line, marker="")
                name_lines(panel, label, line)
        panel.set_yticks([])
        panel.set_ylim(0, None)

    return grid(
        view,
        table,
        [(title, {**dataset, "look": look}) for dataset, look, title in view.one_per_dataset()],
        draw,
        heading="how attention times gradient, from words to the answer, is spread over examples; at the reference "
        "layer, one density per kind of flow",
        below="saliency,\nmean = 1",
        level=None,
        first_height=0.6,
        row_height=0.4,
        sharey=False,
        together=1,
        nothing="not measured",
        narrowest=0.8,
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
    """A figure with a block of panels for each model under each rule."""
    rules: list[Strip] = [(rule, {"rule": rule}) for rule in RULE_NAMES]
    return draw_blocks(view, table, rules, lines, draw, nothing=NOTHING, **options)
