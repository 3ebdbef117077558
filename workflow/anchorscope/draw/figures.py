"""The figures: delta P against layer as published, its honest companion, and what is behind them.

Each `draw_` function draws one kind of figure from the run's tables, with one panel per model. To add a kind, write
such a function and add a record to `kinds.FIGURE_KINDS`.
"""

import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anchorscope.draw import detection, experiments
from anchorscope.draw.kinds import DETECTION_KINDS, FIGURE_KINDS
from anchorscope.draw.panels import (
    FEW,
    Style,
    changed_settings,
    count_layers,
    draw_curve,
    label_rows,
    looks,
    name_panels,
    read_style,
    sheet,
)
from anchorscope.draw.views import ANCHOR_LETTERS, ONE_MECHANISM, View, finish
from anchorscope.extract.axes import COMPONENTS, CONTROLS, EXACT, Headline, window_of
from anchorscope.files.arguments import is_list, is_text
from anchorscope.files.reasons import shortened
from anchorscope.models.manifest import SALMON
from anchorscope.summarise.verdict_on_kinds import TWO_KINDS, judge_all


@dataclass(frozen=True)
class Quantity:
    """What a curve shows: its name on the axis, and the columns that hold it and its interval."""

    title: str
    value: str
    low: str
    high: str


TEXT_ORDER = ("before_answer", "answer_last", "final")  # of the positions
GREY = "0.4"
SURE = (pl.col("n") >= FEW) & pl.col("better_than_chance")  # the rest is drawn faint
CONTROL = "control"
SHUFFLED = "shuffled labels"
UNCHANGED = "unchanged"
KEPT, LOST, ONE_CURVE = "if evidence is kept", "if it is lost", "all examples"
RANDOM_WEIGHTS = "random weights"
RULE_TITLES = {
    "flip": "anchors by verdict flip at each layer",
    "fixed": "anchors by verdict flip at the reference layer",
    "crossfit": "anchors labelled and measured by different probes",
    "replicate": "anchors labelled and measured by different probes under different prompts",
}
TAKEN_OUT = {
    "measured": "as measured",
    "recentred": "without the common push",
    "residual": "without the common push and slope",
}
QUANTITIES = {
    "delta_p": Quantity("ΔP", "delta_p", "low", "high"),
    "delta_logit": Quantity("Δlogit", "delta_logit", "logit_low", "logit_high"),
}
INTERVENTION_TITLES = {
    "exact_question": "exact question words cut",
    "random_question": "control: as many other words cut",
    "subject": "subject cut",
    "random_subject": "control of the subject: as many other words cut",
    "property": "property cut",
    "random_property": "control of the property: as many other words cut",
    "content": "all but function words cut",
    "random_content": "control of these: as many other words cut",
    "whole_question": "whole question cut",
    "random_whole_question": "control of the whole question: as many words before it cut",
}


def intervention_title(name: str) -> str:
    """An intervention in words; a windowed knockout says so."""
    window = window_of(name)
    if window is not None:
        where = f"in the last {window} layers up to the one plotted" if window > 1 else "in the layer plotted"
        return f"exact question words cut {where} only"
    return INTERVENTION_TITLES.get(name, name)


@dataclass(frozen=True)
class Shown:
    """Which curves a panel shows."""

    rule: str = "flip"
    intervention: str = "exact_question"
    logits: str = "measured"
    quantity: Quantity = QUANTITIES["delta_p"]

    def of(self, rows: pl.DataFrame) -> pl.DataFrame:
        """These curves' rows; those not `sure` are drawn faint."""
        labels = "reference" if self.rule == "fixed" else "plotted"
        wanted = {"rule": self.rule, "labels": labels, "intervention": self.intervention, "logits": self.logits}
        return rows.filter(**wanted).with_columns(sure=SURE)


def plot_family(
    summary: pl.DataFrame,
    models: Sequence[str] | Mapping[str, str] | None = None,
    datasets: Sequence[str] | Mapping[str, str] | None = None,
    *,
    rule: str = "flip",
    intervention: str = "exact_question",
    logits: str = "measured",
    quantity: str = "delta_p",
    component: str = "resid",
    position: str = "answer_last",
    note: str = "",
    style: Style | Path | str | None = None,
) -> Figure:
    """Draw delta P against layer: one panel per model, Question-Anchored solid, Answer-Anchored dashed, 95 % bands.

    With `quantity="delta_logit"`, how far the logit moves towards the clean verdict instead of delta P; with `logits`
    recentred or residual, without what the knockout does to all examples alike.

    `summary` is what `load_summary` returns. `models` and `datasets` are names in it, or names with the titles to show;
    without them, all are shown. The legend has the datasets in the order given. Groups of fewer than 20 examples, and
    layers whose probe is no better than chance, are drawn faint. The figure itself says where weights are random, where
    questions are bundled and what is cut in which layers; `note` adds to that. `panels.save` writes the figure as
    the workflow does, with real text in SVG and PDF; for PNG, its own `savefig` is fine. `style` is the name of one of
    matplotlib's styles or a style file; without it, the bundled one, and what `rcParams` or `plt.style.context` change.
    """
    for column, value in (
        ("rule", rule),
        ("intervention", intervention),
        ("logits", logits),
        ("component", component),
        ("position", position),
    ):
        _titles(summary, column, [value])
    if not isinstance(quantity, str) or quantity not in QUANTITIES:
        raise ValueError(f"There is no quantity {shortened(quantity)}; there are {', '.join(QUANTITIES)}.")
    if not is_text(note):
        raise ValueError(f"note is {reprlib.repr(note)}; it must be a text.")
    view = View(
        models=_titles(summary, "model", models),
        datasets=_titles(summary, "dataset", datasets),
        headline=Headline(component, position),
        note=note,
        style=style if isinstance(style, Style) else read_style(style, changed=changed_settings()),
    )
    return _family(summary, view, Shown(rule, intervention, logits, QUANTITIES[quantity]))


def _titles(summary: pl.DataFrame, column: str, given: Sequence[str] | Mapping[str, str] | None) -> dict[str, str]:
    """Names in a column of the summary with their titles, as given; without `given`, all names."""
    titled = isinstance(given, Mapping) and all(map(is_text, given.values()))
    if given is not None and (not (titled or is_list(given)) or not len(given)):
        raise ValueError(
            f"{column}s is {reprlib.repr(given)}; it must be a list of names, or names with the titles to show."
        )
    known = summary[column].unique(maintain_order=True).to_list()
    names = known if given is None else list(given)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(
            f"The summary has no {column} {', '.join(map(shortened, unknown))}; it has {', '.join(known)}."
        )
    return dict(given) if isinstance(given, Mapping) else {name: name for name in names}


def _family(summary: pl.DataFrame, view: View, shown: Shown) -> Figure:
    with sheet(view.style, len(view.models), sharey=True) as (figure, panels):
        _draw_anchors(panels[0], view.of(summary), view, shown)
        panels[0, 0].set(ylabel=shown.quantity.title, ylim=limits(view.of(summary), shown.quantity))
        name_panels(panels[0], view.titles(summary))
        count_layers(panels)
        cut = intervention_title(shown.intervention)
        common = "" if shown.logits == "measured" else f"; {TAKEN_OUT[shown.logits]}"
        finish(figure, panels, view, summary=summary, heading=f"{cut}; {RULE_TITLES[shown.rule]}{common}")
    return figure


def draw_family(tables: dict[str, pl.DataFrame], view: View) -> Figure:
    """The published figure: anchors by verdict flip at each layer."""
    return _family(tables["summary"], view, Shown())


def draw_honest(tables: dict[str, pl.DataFrame], view: View) -> Figure:
    """What survives when one prompt labels and another measures, beside what one mechanism would show.

    Below it the same in logits, and the control.
    """
    summary = tables["summary"]
    rows = view.of(summary)
    honest, change = Shown(rule="replicate"), QUANTITIES["delta_logit"]
    lines = {"ΔP": honest, change.title: replace(honest, quantity=change)}
    lines |= {f"ΔP, {CONTROL}": replace(honest, intervention="random_question")}
    with sheet(view.style, len(view.models), rows=3, row_height=0.7, sharey="row", sharex="col") as (figure, panels):
        for line, (label, shown) in zip(panels, lines.items(), strict=True):
            _draw_anchors(line, rows, view, shown, null=shown.quantity is not change)
            if shown.intervention == EXACT:
                _draw_salmons(line, shown.of(summary).filter(anchor="question"), view, shown.quantity.value)
            line[0].set(ylabel=label, ylim=limits(rows, shown.quantity))
        name_panels(panels[0], view.titles(summary))
        count_layers(panels)
        heading = f"{RULE_TITLES['replicate']}; control: as many other words cut"
        finish(figure, panels, view, summary=summary, heading=heading)
    return figure


def draw_push(tables: dict[str, pl.DataFrame], view: View) -> Figure:
    """The honest gap as measured, and with what the knockout does to all examples alike taken out."""
    summary = tables["summary"]
    rows = view.of(summary).filter(rule="replicate", labels="plotted", intervention="exact_question", anchor="gap")
    chosen = looks(view.style, len(ANCHOR_LETTERS) * len(view.datasets))[:: len(ANCHOR_LETTERS)]
    with sheet(view.style, len(view.models), rows=3, row_height=0.8, sharey=True, sharex="col") as (figure, panels):
        for line, (logits, title) in zip(panels, TAKEN_OUT.items(), strict=True):
            for panel, model in zip(line, view.models, strict=True):
                for (dataset, name), look in zip(view.datasets.items(), chosen, strict=True):
                    mine = rows.filter(model=model, dataset=dataset, logits=logits).with_columns(sure=SURE)
                    draw_curve(panel, mine, "delta_p", ends=("low", "high"), look=look, label=name)
                    _draw_null(panel, mine, look)
                _end_panel(panel, null=True)
            label_rows(line[0], f"gap, {title}", len(panels))
        name_panels(panels[0], view.titles(summary))
        count_layers(panels)
        heading = f"gap: Question-Anchored minus Answer-Anchored, in points of ΔP; {RULE_TITLES['replicate']}"
        finish(figure, panels, view, summary=summary, heading=heading, together=1)
    return figure


def draw_words(tables: dict[str, pl.DataFrame], view: View) -> Figure:
    """The honest gap for each choice of the words that are cut: the finding must not hang on who chose them."""
    return _by_knockout(tables, view, list(CONTROLS))


def draw_windows(tables: dict[str, pl.DataFrame], view: View) -> Figure:
    """The honest gap where the exact words are cut in the last layers only, and in all of them."""
    known = tables["summary"]["intervention"].unique().to_list()
    return _by_knockout(tables, view, [*sorted(filter(window_of, known), key=lambda name: window_of(name) or 0), EXACT])


def _by_knockout(tables: dict[str, pl.DataFrame], view: View, knockouts: Sequence[str]) -> Figure:
    """The gap under the honest rule, a row of panels for each dataset, a curve for each knockout that was measured."""
    rows = view.of(tables["summary"]).filter(rule="replicate", labels="plotted", logits="measured", anchor="gap")
    measured = [name for name in knockouts if name in set(rows["intervention"])]
    with sheet(view.style, len(view.models), rows=len(view.datasets), row_height=0.7, sharey=True, sharex="col") as (
        figure,
        panels,
    ):
        for line, (dataset, title) in zip(panels, view.datasets.items(), strict=True):
            for panel, model in zip(line, view.models, strict=True):
                for name, look in zip(measured, looks(view.style, len(measured)), strict=True):
                    mine = rows.filter(model=model, dataset=dataset, intervention=name).with_columns(sure=SURE)
                    label = intervention_title(name)
                    draw_curve(panel, mine, "delta_p", ends=("low", "high"), look=look, label=label)
                _end_panel(panel, null=False)
            label_rows(line[0], f"gap, {title}", len(panels))
        name_panels(panels[0], view.titles(tables["summary"]))
        count_layers(panels)
        heading = f"gap: Question-Anchored minus Answer-Anchored, in points of ΔP; {RULE_TITLES['replicate']}"
        finish(figure, panels, view, summary=tables["summary"], heading=heading, together=1)
    return figure


def draw_lines(tables: dict[str, pl.DataFrame], view: View) -> Figure:
    """What the knockout does to each example: its logit under it against its clean one, and the curve of each kind."""
    examples = view.of(tables["deepest"]).filter(intervention="exact_question")
    verdicts = {pair: found.verdict for pair, found in judge_all(tables["accounts"]).items()}
    with sheet(view.style, len(view.models), rows=len(view.datasets), row_height=0.8) as (figure, panels):
        for line, (dataset, title) in zip(panels, view.datasets.items(), strict=True):
            for panel, model in zip(line, view.models, strict=True):
                mine = examples.filter(model=model, dataset=dataset)
                if not mine.is_empty():
                    fitted = tables["accounts"].filter(model=model, dataset=dataset, layer=mine["layer"][0])
                    verdict = verdicts.get((model, dataset), "not judged")
                    shown = looks(view.style, len(ANCHOR_LETTERS))
                    _draw_logits(panel, mine, fitted.row(0, named=True), pair=shown, verdict=verdict)
            label_rows(line[0], f"{title}, cut", len(panels))
        name_panels(panels[0], view.titles(tables["summary"]))
        for panel in panels[-1]:
            panel.set_xlabel("clean logit")
        heading = 'logits of "hallucinated" with the exact question words cut, against clean ones; at the deepest layer'
        finish(figure, panels, view, summary=tables["summary"], heading=heading, together=1, last=UNCHANGED)
    return figure


def _draw_logits(panel: Axes, examples: pl.DataFrame, lines: dict, *, pair: list[dict], verdict: str) -> None:
    """One point per example under the first prompt, by its answer; the curve of each kind that is seen."""
    reach = float(examples.select(pl.max_horizontal(pl.col("^logit_.*_first$").abs().max())).item())
    for look, (wrong, label) in zip(pair, {False: "right answer", True: "hallucinated"}.items(), strict=True):
        some = examples.filter(hallucinated=wrong)
        clean, cut = (some[f"logit_{state}_first"].to_numpy() for state in ("clean", "ko"))
        panel.scatter(clean, cut, s=5, color=look["color"], alpha=0.5, linewidths=0, label=label)
    ends = np.array([-reach, reach])
    style: dict[str, Any] = {"color": "0.15", "linewidth": 1.0, "marker": ""}
    if verdict == TWO_KINDS:
        panel.plot(lines["at_clean"], lines["kept_curve"], "-", **style, label=KEPT)
        panel.plot(ends, [lines["level_lost"]] * 2, "--", **style, label=LOST)
    else:
        panel.plot(lines["at_clean"], lines["one_curve"], "-.", **style, label=ONE_CURVE)
    panel.plot(ends, ends, ":", color="0.6", linewidth=0.8, marker="", label=UNCHANGED)
    panel.axhline(0, color="0.6", linewidth=0.6, zorder=0)
    panel.axvline(0, color="0.6", linewidth=0.6, zorder=0)
    panel.set(ylim=(-1.1 * reach, 1.1 * reach), xlim=(-1.1 * reach, 1.1 * reach))
    panel.text(
        0.02, 0.94, f"layer {examples['layer'][0]}: {verdict}", transform=panel.transAxes, va="top", fontsize="small"
    )


def draw_auc(tables: dict[str, pl.DataFrame], view: View) -> Figure:
    """How well the probes rank, clean and knocked out."""
    layers = view.of(tables["layers"]).with_columns(sure=pl.lit(True))
    chosen = looks(view.style, len(ANCHOR_LETTERS) * len(view.datasets))
    with sheet(view.style, len(view.models), sharey=True) as (figure, panels):
        for panel, model in zip(panels[0], view.models, strict=True):
            for number, (dataset, title) in enumerate(view.datasets.items()):
                of_question, of_answer = chosen[2 * number : 2 * number + 2]
                cut = {**of_answer, "color": of_question["color"]}
                states = {"clean": (of_question, "clean"), "exact_question": (cut, "cut")}
                for intervention, (look, state) in states.items():
                    rows = layers.filter(model=model, dataset=dataset, intervention=intervention)
                    draw_curve(panel, rows, "auc", ends=("auc_low", "auc_high"), look=look, label=f"{title}, {state}")
                mine = layers.filter(model=model, dataset=dataset, intervention="clean").sort("layer")
                panel.plot(mine["layer"], mine["auc_shuffled"], color=of_question["color"], linestyle=":", marker="")
            panel.plot([], [], color=GREY, linestyle=":", marker="", label=SHUFFLED)
            panel.axhline(0.5, color="0.6", linewidth=0.8, zorder=0)
        salmons = tables["layers"].filter(intervention="clean")
        _draw_salmons(panels[0], salmons, view, "auc")
        panels[0, 0].set_ylabel("AUC of the probe")
        name_panels(panels[0], view.titles(tables["summary"]))
        count_layers(panels)
        heading = "clean, and with the exact question words cut; dotted: probes that learnt shuffled labels"
        finish(figure, panels, view, summary=tables["summary"], heading=heading, last=SHUFFLED)
    return figure


def draw_share(tables: dict[str, pl.DataFrame], view: View) -> Figure:
    """How many examples are Question-Anchored at each layer."""
    summary = tables["summary"]
    rows = Shown().of(view.of(summary)).with_columns(pl.col("^share.*$") * 100)
    chosen = looks(view.style, len(ANCHOR_LETTERS) * len(view.datasets))[:: len(ANCHOR_LETTERS)]
    with sheet(view.style, len(view.models), sharey=True) as (figure, panels):
        for panel, model in zip(panels[0], view.models, strict=True):
            for (dataset, title), look in zip(view.datasets.items(), chosen, strict=True):
                mine = rows.filter(model=model, dataset=dataset, anchor="question")
                draw_curve(panel, mine, "share", ends=("share_low", "share_high"), look=look, label=title)
        panels[0, 0].set(ylabel="Question-Anchored, %", ylim=(0, None))
        name_panels(panels[0], view.titles(summary))
        count_layers(panels)
        finish(figure, panels, view, summary=summary, heading=RULE_TITLES["flip"], together=1)
    return figure


def draw_grid(tables: dict[str, pl.DataFrame], view: View) -> Figure:
    """The published figure at every measured component (rows) and position (columns), one model below another."""
    summary = tables["summary"].filter(pl.col("model").is_in(list(view.models)))
    components, positions = (
        [name for name in known if name in set(summary[column])]
        for column, known in (("component", COMPONENTS), ("position", TEXT_ORDER))
    )
    lines = [(model, component) for model in view.models for component in components]
    titles = dict(zip(view.models, view.titles(summary), strict=True))
    with sheet(view.style, len(positions), rows=len(lines), row_height=0.6, sharey=True, sharex="row") as (
        figure,
        panels,
    ):
        for line, (model, component) in zip(panels, lines, strict=True):
            alone = replace(view, models={model: titles[model]})
            for panel, position in zip(line, positions, strict=True):
                rows = summary.filter(component=component, position=position)
                _draw_anchors([panel], rows, alone, Shown())
            line[0].set_ylabel(f"ΔP, {component}")
            if component == components[0]:
                name_panels(line, [f"{titles[model]}, {position}" for position in positions])
        panels[0, 0].set_ylim(limits(summary))
        count_layers(panels)
        heading = f"{INTERVENTION_TITLES['exact_question']}; {RULE_TITLES['flip']}"
        finish(figure, panels, view, summary=tables["summary"], heading=heading)
    return figure


def draw_distribution(tables: dict[str, pl.DataFrame], view: View) -> Figure:
    """Every example's delta P at the deepest layer, under the knockout by anchor and under the control."""
    examples = view.of(tables["deepest"])
    with sheet(view.style, len(view.models), rows=len(view.datasets), row_height=0.45, sharey=True, sharex=True) as (
        figure,
        panels,
    ):
        for line, (dataset, title) in zip(panels, view.datasets.items(), strict=True):
            for panel, model in zip(line, view.models, strict=True):
                mine = examples.filter(model=model, dataset=dataset)
                if not mine.is_empty():
                    _draw_histogram(panel, mine, looks(view.style, len(ANCHOR_LETTERS)))
            label_rows(line[0], f"{title}, %", len(panels))
        name_panels(panels[0], view.titles(tables["summary"]))
        for panel in panels[-1]:
            panel.set_xlabel("ΔP")
        heading = f"at the deepest layer; {RULE_TITLES['flip']}"
        finish(figure, panels, view, summary=tables["summary"], heading=heading, together=1, last=CONTROL)
    return figure


def _draw_salmons(panels: Sequence[Axes], rows: pl.DataFrame, view: View, value: str) -> None:
    """The same answers through random weights of each model's shape, a thin curve per dataset, where that was made."""
    rows = rows.filter(**asdict(view.headline))
    chosen = looks(view.style, len(ANCHOR_LETTERS) * len(view.datasets))[:: len(ANCHOR_LETTERS)]
    for panel, model in zip(panels, view.models, strict=True):
        for dataset, look in zip(view.datasets, chosen, strict=True):
            mine = rows.filter(model=f"{model}{SALMON}", dataset=dataset).sort("layer")
            if not mine.is_empty():
                style = {"color": look["color"], "linestyle": "-.", "linewidth": 0.8, "marker": ""}
                panel.plot(mine["layer"], mine[value], **style)
                panel.plot([], [], **{**style, "color": GREY}, label=RANDOM_WEIGHTS)


def _draw_histogram(panel: Axes, examples: pl.DataFrame, pair: list[dict]) -> None:
    """Shares of all examples in steps of five points, one group stacked on the other, and the control's outline."""
    edges = list(range(-100, 51, 5))
    cut = examples.filter(intervention="exact_question")
    groups = [cut.filter(question_anchored=anchored)["delta_p"].to_numpy() for anchored in (True, False)]
    weights = [np.full(len(group), 100 / len(cut)) for group in groups]
    labels, colours = ["Question-Anchored", "Answer-Anchored"], [look["color"] for look in pair]
    panel.hist(groups, edges, weights=weights, stacked=True, color=colours, label=labels, linewidth=0)
    control = examples.filter(intervention="random_question")["delta_p"].to_numpy()
    shares = np.full(len(control), 100 / max(1, len(control)))
    panel.hist(control, edges, weights=shares, histtype="step", color="0.3", linewidth=0.8, label=CONTROL)
    counted = f"layer {cut['layer'][0]}\n{len(cut)} examples"
    panel.text(0.02, 0.94, counted, transform=panel.transAxes, va="top", fontsize="small")


def _draw_anchors(panels: Sequence[Axes], rows: pl.DataFrame, view: View, shown: Shown, *, null: bool = False) -> None:
    """Two curves per dataset in each model's panel; with `null`, also where one mechanism would put them."""
    rows, quantity = shown.of(rows), shown.quantity
    series = [(dataset, anchor) for dataset in view.datasets for anchor in ANCHOR_LETTERS]
    for panel, model in zip(panels, view.models, strict=True):
        for (dataset, anchor), look in zip(series, looks(view.style, len(series)), strict=True):
            mine = rows.filter(model=model, dataset=dataset, anchor=anchor)
            label = f"{ANCHOR_LETTERS[anchor]} {view.datasets[dataset]}"
            draw_curve(panel, mine, quantity.value, ends=(quantity.low, quantity.high), look=look, label=label)
            if null:
                _draw_null(panel, mine, look)
        _end_panel(panel, null)


def _draw_null(panel: Axes, rows: pl.DataFrame, look: dict) -> None:
    """Where one mechanism would put a curve, where that is known."""
    band = rows.drop_nulls("null").sort("layer")
    layer, middle, low, high = (band[name].to_numpy() for name in ("layer", "null", "null_low", "null_high"))
    panel.fill_between(layer, low, high, color=GREY, alpha=0.15, linewidth=0, zorder=0)
    panel.plot(layer, middle, color=look["color"], linestyle=":", marker="")


def _end_panel(panel: Axes, null: bool) -> None:
    if null:
        panel.plot([], [], color=GREY, linestyle=":", marker="", label=ONE_MECHANISM)
    panel.axhline(0, color="0.6", linewidth=0.8, zorder=0)


def limits(rows: pl.DataFrame, quantity: Quantity = QUANTITIES["delta_p"]) -> tuple[float, float]:
    """One y axis for every rule and intervention of the same models, so that figures compare by eye."""
    drawn = rows.filter(pl.col("anchor").is_in(list(ANCHOR_LETTERS)))
    banded = drawn.filter(pl.col("n") >= FEW)
    bands = [banded[quantity.low], banded[quantity.high]]
    if quantity.value == "delta_p":
        bands += [drawn["null_low"], drawn["null_high"]]
    values = [value for column in (drawn[quantity.value], *bands) for value in column.drop_nulls()]
    least = 1.0 if quantity.value == "delta_p" else 0.1
    low, high = min([-least, *values]), max([least, *values])
    margin = 0.04 * (high - low)
    return low - margin, high + margin


# By the name of the kind. A kind whose function is in none of these modules stops the import.
DRAW: dict[str, Callable[[dict[str, pl.DataFrame], View], Figure]] = {
    kind.name: getattr(experiments, kind.function) if kind.experiment else globals()[kind.function]
    for kind in FIGURE_KINDS
} | {kind.name: getattr(detection, kind.function) for kind in DETECTION_KINDS}
