"""The figures of the other experiments: both groupings side by side, a row of panels for each dataset."""

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anchorscope.draw.panels import FEW, draw_curve, looks
from anchorscope.draw.views import ANCHOR_LETTERS, Strip, Tables, View, grid
from anchorscope.experiments.names import ACCURACY, EQUAL_LOGIT, LOGPROB, MEAN, RULE_NAMES, SUBJECT, UNSURE
from anchorscope.models.manifest import SALMON

READER_TITLES = {
    "states": "clean states",
    "signed": "clean logit alone",
    "logit": "clean logit and its size",
    "other_prompt": "clean states, group of the other prompt",
    "shuffled": "clean states, shuffled groups",
}
FLOW_TITLES = {"exact": "exact question words", "random": "as many other words"}
SHIFT = 0.2  # of a bar from the middle of its place
BOTH_RULES = "flip: groups by verdict flip; honest: groups of the other prompt and its own probe"
FAINTER = 0.6
NOTHING = "too few in a group, or not probed"
POINTS = 200  # of a density


def draw_patching(tables: Tables, view: View) -> Figure:
    """How often verdicts flip when the exact words are replaced, and when other words are."""
    conditions = {"patch_question": "exact words replaced", "patch_random": "other words replaced"}
    return _by_layer(tables["patching"], view, "flips", conditions, unit="% flipped")


def draw_answer_only(tables: Tables, view: View) -> Figure:
    """How far confidence moves without the question, and after another one."""
    conditions = {"answer_only": "the answer alone", "answer_after_other": "the answer after another question"}
    return _by_layer(tables["answer_only"], view, "delta_p", conditions, unit="ΔP")


def _by_layer(table: pl.DataFrame, view: View, measure: str, conditions: Mapping[str, str], unit: str) -> Figure:
    """Both groups by layer under a condition, and lighter under its control."""
    rows = view.of(table).filter(pl.col("layer").is_not_null(), measure=measure, stratum="all").sort("layer")
    pair = looks(view.style, len(ANCHOR_LETTERS))
    lines, columns = view.by_dataset(f"{{}}, {unit}"), _both_rules(view, table)
    with grid(view, table, lines, columns, heading=BOTH_RULES, row_height=0.7, nothing=NOTHING) as (figure, cells):
        for panel, cell in cells:
            for (condition, title), main in zip(conditions.items(), (True, False), strict=True):
                for (anchor, letter), look in zip(ANCHOR_LETTERS.items(), pair, strict=True):
                    mine = rows.filter(condition=condition, anchor=anchor, **cell)
                    label = f"{letter}, {title}"
                    if main:
                        sure = mine.with_columns(sure=pl.col("n") >= FEW)
                        draw_curve(panel, sure, "value", ends=("low", "high"), look=look, label=label)
                    elif not mine.is_empty():
                        lighter = {"color": look["color"], "alpha": FAINTER, "linestyle": ":", "marker": ""}
                        panel.plot(mine["layer"], mine["value"].cast(pl.Float64), **lighter, label=label)
    return figure


def draw_awareness(tables: Tables, view: View) -> Figure:
    """How well each reader tells the group."""
    table = tables["awareness"]
    rows = view.of(table).filter(pl.col("layer").is_not_null(), measure="auc").with_columns(sure=pl.lit(True))
    with grid(
        view,
        table,
        view.by_dataset("{}, AUC, %"),
        _both_rules(view, table),
        heading=f"which group an example is in, told by probes on what they see; {BOTH_RULES}",
        level=50,
        row_height=0.7,
        together=1,
        nothing=NOTHING,
    ) as (figure, cells):
        for panel, cell in cells:
            for (reader, title), look in zip(READER_TITLES.items(), looks(view.style, len(READER_TITLES)), strict=True):
                mine = rows.filter(condition=reader, **cell)
                draw_curve(panel, mine, "value", ends=("low", "high"), look=look, label=title)
    return figure


def draw_boundary(tables: Tables, view: View) -> Figure:
    """What the model knows of each group's questions, at the reference layer, over all answers."""
    table = tables["boundary"]
    at_reference = view.of(tables["layers"]).filter("is_reference", intervention="clean")
    rows = view.of(table).join(at_reference.select("model", "dataset", "layer"), on=["model", "dataset", "layer"])
    known = rows.drop_nulls(["value", "low", "high"])
    lines: list[Strip] = [
        (title, {"pair": _beside(title, view), "places": places})
        for title, places in _boundary_lines(rows, view).items()
    ]
    with grid(
        view,
        table,
        lines,
        _both_rules(view, table),
        heading=f"at the reference layer, over all answers; {BOTH_RULES}",
        below="",
        row_height=0.7,
        sharex=False,
        sharey="row",
        nothing=NOTHING,
    ) as (figure, cells):
        for panel, cell in cells:
            pair, places = cell.pop("pair"), cell.pop("places")
            for (name, chosen, look), offset in zip(pair, (-SHIFT, SHIFT), strict=True):
                bars = [known.filter(**place, **chosen, **cell).head(1) for place in places.values()]
                _draw_bars(panel, bars, offset=offset, look=look, label=name)
            panel.set_xticks(range(len(places)), [_short(place) for place in places], rotation=30, ha="right")
    return figure


GAPS = ("right, Q − A, points", "log₁₀ popularity, Q − A")


def _boundary_lines(rows: pl.DataFrame, view: View) -> dict[str, dict[str, dict]]:
    """The rows of panels that have something to show: where each bar stands, and which rows it is of."""
    thirds = [name for name in rows["stratum"].unique(maintain_order=True) if name not in ("all", EQUAL_LOGIT)]
    wanted: dict[str, tuple[str, Sequence[str]]] = {
        "right, %": (ACCURACY, ("all",)),
        GAPS[0]: (ACCURACY, ("all",)),
        "right, %, by popularity": (ACCURACY, thirds),
        '"I don\'t know", %': (UNSURE, ("all",)),
        "log₁₀ popularity": (SUBJECT, ("all",)),
        GAPS[1]: (SUBJECT, ("all",)),
        "log probability": (LOGPROB, ("all",)),
    }
    lines = {}
    for title, (measure, strata) in wanted.items():
        places = {
            f"{name} {stratum}".removesuffix(" all"): {"dataset": dataset, "measure": measure}
            | ({} if title in GAPS else {"stratum": stratum})
            for dataset, name in view.datasets.items()
            for stratum in strata
            if not rows.filter(dataset=dataset, measure=measure, stratum=stratum).is_empty()
        }
        if places:
            lines[title] = places
    return lines


def _beside(title: str, view: View) -> list[tuple[str, dict, dict]]:
    """The two bars that stand side by side in a row of panels: name, rows and look."""
    first, second, third, fourth = looks(view.style, 4)
    if title in GAPS:
        as_they_are, matched = {"anchor": "gap", "stratum": "all"}, {"anchor": "gap", "stratum": EQUAL_LOGIT}
        return [("Q − A", as_they_are, third), ("Q − A at equal clean logit", matched, fourth)]
    return [("Q", {"anchor": "question"}, first), ("A", {"anchor": "answer"}, second)]


def _draw_bars(panel: Axes, bars: Sequence[pl.DataFrame], offset: float, look: dict, label: str) -> None:
    """Bars with their intervals, each a row or, where there is none, nothing."""
    known = pl.concat([bar.with_columns(place=pl.lit(place + offset)) for place, bar in enumerate(bars)])
    if not known.is_empty():
        places = known["place"]
        panel.bar(places, known["value"], width=1.9 * SHIFT, color=look["color"], label=label, linewidth=0, alpha=0.8)
        panel.vlines(places, known["low"], known["high"], color="0.25", linewidth=1.2)


def _short(place: str) -> str:
    return place if len(place) <= 24 else f"{place[:23]}…"


def draw_saliency(tables: Tables, view: View) -> Figure:
    """How the flow from the question to the answer is spread over examples, beside other flows."""
    table = tables["saliency"]
    every = {**view.models, **{f"{model}{SALMON}": title for model, title in view.models.items()}}
    samples = table.filter(pl.col("model").is_in(list(every)), measure=MEAN, stratum="all")
    with grid(
        view,
        table,
        view.by_dataset("{}, density"),
        heading="attention times gradient, from words to the answer, at the reference layer; one density per kind of "
        "flow",
        below="saliency, relative to its mean",
        row_height=0.6,
        sharex=False,
        sharey=False,
        together=1,
        nothing=NOTHING,
    ) as (figure, cells):
        for panel, cell in cells:
            curves = {name: samples.filter(condition=flow, **cell) for flow, name in FLOW_TITLES.items()}
            salmon = {**cell, "model": f"{cell['model']}{SALMON}", "condition": "exact"}
            curves["exact question words, random weights"] = samples.filter(**salmon)
            for (name, row), look in zip(curves.items(), looks(view.style, len(curves)), strict=True):
                if not row.is_empty():
                    reach, heights = density(row["sample"][0].to_numpy().astype(np.float64))
                    plain = {"color": look["color"], "linestyle": look["linestyle"], "marker": ""}
                    panel.plot(reach, heights, **plain, label=name)
    return figure


def density(sample: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A smooth density of positive values, relative to their mean, up to where nearly all of them lie."""
    values = sample / max(sample.mean(), np.finfo(float).tiny)
    spread = min(values.std(), (np.quantile(values, 0.75) - np.quantile(values, 0.25)) / 1.34) or 1.0
    width = 0.9 * spread * len(values) ** -0.2  # Silverman's rule
    reach = np.linspace(0, np.quantile(values, 0.99) + 3 * width, POINTS)
    # What would lie below zero is folded back.
    near = np.exp(-0.5 * ((reach[:, None] - np.concatenate([values, -values])) / width) ** 2)
    return reach, near.sum(1) / (len(values) * width * np.sqrt(2 * np.pi))


def _both_rules(view: View, table: pl.DataFrame) -> list[Strip]:
    """A column of panels for each model under each rule."""
    return [
        (f"{title}, {rule}", {**model, "rule": rule}) for title, model in view.by_model(table) for rule in RULE_NAMES
    ]
