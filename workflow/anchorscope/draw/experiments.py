"""The figures of the other experiments: both groupings side by side, a row of panels for each dataset."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anchorscope.draw.panels import FEW, count_layers, draw_curve, label_rows, looks, name_panels, sheet
from anchorscope.draw.views import ANCHOR_LETTERS, View, finish
from anchorscope.experiments.names import ACCURACY, EQUAL_LOGIT, LOGPROB, MEAN, RULE_NAMES, SUBJECT, UNSURE
from anchorscope.models.manifest import SALMON

Tables = dict[str, pl.DataFrame]
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


@dataclass(frozen=True)
class Bar:
    """A value with its interval."""

    value: float
    low: float
    high: float


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
    rows = view.of(table).filter(pl.col("layer").is_not_null(), measure=measure, stratum="all")
    pair = looks(view.style, len(ANCHOR_LETTERS))
    with _both_rules(view) as (figure, panels):
        for panel, chosen in _each_panel(panels, view):
            for (condition, title), main in zip(conditions.items(), (True, False), strict=True):
                for (anchor, letter), look in zip(ANCHOR_LETTERS.items(), pair, strict=True):
                    mine = rows.filter(condition=condition, anchor=anchor, **chosen).sort("layer")
                    label = f"{letter}, {title}"
                    if main:
                        sure = mine.with_columns(sure=pl.col("n") >= FEW)
                        draw_curve(panel, sure, "value", ends=("low", "high"), look=look, label=label)
                    elif not mine.is_empty():
                        lighter = {"color": look["color"], "alpha": FAINTER, "linestyle": ":", "marker": ""}
                        panel.plot(mine["layer"], mine["value"].cast(pl.Float64), **lighter, label=label)
            panel.axhline(0, color="0.6", linewidth=0.8, zorder=0)
        _name(panels, view, table, unit)
        count_layers(panels)
        finish(figure, panels, view, summary=table, heading=BOTH_RULES, nothing=NOTHING)
    return figure


def draw_awareness(tables: Tables, view: View) -> Figure:
    """How well each reader tells the group."""
    table = tables["awareness"]
    rows = view.of(table).filter(pl.col("layer").is_not_null(), measure="auc")
    with _both_rules(view) as (figure, panels):
        for panel, chosen in _each_panel(panels, view):
            for (reader, title), look in zip(READER_TITLES.items(), looks(view.style, len(READER_TITLES)), strict=True):
                mine = rows.filter(condition=reader, **chosen).with_columns(sure=pl.lit(True))
                draw_curve(panel, mine, "value", ends=("low", "high"), look=look, label=title)
            panel.axhline(50, color="0.6", linewidth=0.8, zorder=0)
        _name(panels, view, table, "AUC, %")
        count_layers(panels)
        heading = f"which group an example is in, told by probes on what they see; {BOTH_RULES}"
        finish(figure, panels, view, summary=table, heading=heading, together=1, nothing=NOTHING)
    return figure


def draw_boundary(tables: Tables, view: View) -> Figure:
    """What the model knows of each group's questions, at the reference layer, over all answers."""
    table = tables["boundary"]
    at_reference = view.of(tables["layers"]).filter("is_reference", intervention="clean")
    rows = view.of(table).join(at_reference.select("model", "dataset", "layer"), on=["model", "dataset", "layer"])
    lines = _boundary_lines(rows, view)
    columns = len(view.models) * len(RULE_NAMES)
    with sheet(view.style, columns, rows=len(lines), row_height=0.7, sharey="row") as (figure, panels):
        for line, (title, places) in zip(panels, lines.items(), strict=True):
            for panel, (model, rule) in zip(line, _columns(view), strict=True):
                mine = rows.filter(model=model, rule=rule)
                for (name, chosen), look, offset in zip(*_beside(title, view), (-SHIFT, SHIFT), strict=True):
                    bars = [_bar(mine.filter(**place, **chosen)) for place in places.values()]
                    _draw_bars(panel, bars, offset=offset, look=look, label=name)
                panel.axhline(0, color="0.6", linewidth=0.8, zorder=0)
                panel.set_xticks(range(len(places)), [_short(place) for place in places], rotation=30, ha="right")
            label_rows(line[0], title, len(panels))
        name_panels(panels[0], _titles(view, table))
        heading = f"at the reference layer, over all answers; {BOTH_RULES}"
        finish(figure, panels, view, summary=table, heading=heading, nothing=NOTHING)
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


def _beside(title: str, view: View) -> tuple[list[tuple[str, dict]], list[dict]]:
    """The two bars that stand side by side in a row of panels, by name, and their looks."""
    chosen = looks(view.style, 4)
    if title in GAPS:
        as_they_are, matched = {"anchor": "gap", "stratum": "all"}, {"anchor": "gap", "stratum": EQUAL_LOGIT}
        return [("Q − A", as_they_are), ("Q − A at equal clean logit", matched)], chosen[2:]
    return [(letter, {"anchor": anchor}) for anchor, letter in ANCHOR_LETTERS.items()], chosen[:2]


def _bar(row: pl.DataFrame) -> Bar | None:
    """The one row of a bar; none where there is no interval."""
    known = row.drop_nulls(["value", "low", "high"])
    return Bar(*known.select("value", "low", "high").row(0)) if len(known) else None


def _draw_bars(panel: Axes, bars: Sequence[Bar | None], offset: float, look: dict, label: str) -> None:
    known = [(place, bar) for place, bar in enumerate(bars) if bar is not None]
    if known:
        places, values = [place + offset for place, _ in known], [bar.value for _, bar in known]
        panel.bar(places, values, width=1.9 * SHIFT, color=look["color"], label=label, linewidth=0, alpha=0.8)
        panel.vlines(places, [bar.low for _, bar in known], [bar.high for _, bar in known], color="0.25", linewidth=1.2)


def _short(place: str) -> str:
    return place if len(place) <= 24 else f"{place[:23]}…"


def draw_saliency(tables: Tables, view: View) -> Figure:
    """How the flow from the question to the answer is spread over examples, beside other flows."""
    table = tables["saliency"]
    every = {**view.models, **{f"{model}{SALMON}": title for model, title in view.models.items()}}
    samples = table.filter(pl.col("model").is_in(list(every)), measure=MEAN, stratum="all")
    with sheet(view.style, len(view.models), rows=len(view.datasets), row_height=0.6) as (figure, panels):
        for line, (dataset, title) in zip(panels, view.datasets.items(), strict=True):
            for panel, model in zip(line, view.models, strict=True):
                curves = {
                    name: samples.filter(model=model, dataset=dataset, condition=flow)
                    for flow, name in FLOW_TITLES.items()
                }
                salmon = samples.filter(model=f"{model}{SALMON}", dataset=dataset, condition="exact")
                curves["exact question words, random weights"] = salmon
                for (name, row), look in zip(curves.items(), looks(view.style, len(curves)), strict=True):
                    if not row.is_empty():
                        reach, heights = density(row["sample"][0].to_numpy().astype(np.float64))
                        plain = {"color": look["color"], "linestyle": look["linestyle"], "marker": ""}
                        panel.plot(reach, heights, **plain, label=name)
                panel.axhline(0, color="0.6", linewidth=0.8, zorder=0)
            label_rows(line[0], f"{title}, density", len(panels))
        name_panels(panels[0], view.titles(table))
        for panel in panels[-1]:
            panel.set_xlabel("saliency, relative to its mean")
        heading = (
            "attention times gradient, from words to the answer, at the reference layer; one density per kind of flow"
        )
        finish(figure, panels, view, summary=table, heading=heading, together=1, nothing=NOTHING)
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


def _both_rules(view: View) -> AbstractContextManager[tuple[Figure, np.ndarray]]:
    """A row of panels for each dataset, a column for each model under each rule."""
    columns = len(view.models) * len(RULE_NAMES)
    return sheet(view.style, columns, rows=len(view.datasets), row_height=0.7, sharey=True, sharex="col")


def _columns(view: View) -> list[tuple[str, str]]:
    return [(model, rule) for model in view.models for rule in RULE_NAMES]


def _each_panel(panels: np.ndarray, view: View) -> list[tuple[Axes, dict]]:
    """Every panel, and which rows it shows."""
    return [
        (panel, {"model": model, "rule": rule, "dataset": dataset})
        for line, dataset in zip(panels, view.datasets, strict=True)
        for panel, (model, rule) in zip(line, _columns(view), strict=True)
    ]


def _titles(view: View, table: pl.DataFrame) -> list[str]:
    return [f"{title}, {rule}" for title in view.titles(table) for rule in RULE_NAMES]


def _name(panels: np.ndarray, view: View, table: pl.DataFrame, unit: str) -> None:
    for line, title in zip(panels, view.datasets.values(), strict=True):
        label_rows(line[0], f"{title}, {unit}", len(panels))
    name_panels(panels[0], _titles(view, table))
