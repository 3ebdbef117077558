"""The figures: delta P against layer as published, its honest companion, and what is behind them.

Each `draw_` function draws one kind of figure from the run's tables, with one panel per model. To add a kind, write
such a function and add a record to `kinds.FIGURE_KINDS`.
"""

import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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
    draw_curve,
    looks,
    name_panels,
    read_style,
)
from anchorscope.draw.views import ANCHOR_LETTERS, ONE_MECHANISM, Strip, Tables, View, grid
from anchorscope.extract.axes import COMPONENTS, CONTROLS, EXACT, Headline, window_of
from anchorscope.files.arguments import is_list, is_text
from anchorscope.files.faults import shortened
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
    rows, cut = view.of(summary), intervention_title(shown.intervention)
    common = "" if shown.logits == "measured" else f"; {TAKEN_OUT[shown.logits]}"
    heading = f"{cut}; {RULE_TITLES[shown.rule]}{common}"
    with grid(view, summary, [(shown.quantity.title, {})], heading=heading) as (figure, cells):
        for panel, cell in cells:
            _draw_anchors(panel, rows.filter(**cell), view, shown)
        cells[0][0].set_ylim(limits(rows, shown.quantity))
    return figure


def draw_family(tables: Tables, view: View) -> Figure:
    """The published figure: anchors by verdict flip at each layer."""
    return _family(tables["summary"], view, Shown())


def draw_honest(tables: Tables, view: View) -> Figure:
    """What survives when one prompt labels and another measures, beside what one mechanism would show.

    Below it the same in logits, and the control.
    """
    summary = tables["summary"]
    rows = view.of(summary)
    honest, change = Shown(rule="replicate"), QUANTITIES["delta_logit"]
    lines: list[Strip] = [
        ("ΔP", {"shown": honest}),
        (change.title, {"shown": replace(honest, quantity=change)}),
        (f"ΔP, {CONTROL}", {"shown": replace(honest, intervention="random_question")}),
    ]
    reach = {quantity: limits(rows, quantity) for quantity in QUANTITIES.values()}
    heading = f"{RULE_TITLES['replicate']}; control: as many other words cut"
    with grid(view, summary, lines, heading=heading, row_height=0.7, sharey="row") as (figure, cells):
        for panel, cell in cells:
            shown, model = cell["shown"], cell["model"]
            _draw_anchors(panel, rows.filter(model=model), view, shown, null=shown.quantity is not change)
            if shown.intervention == EXACT:
                salmons = shown.of(summary).filter(anchor="question")
                _draw_salmons(panel, salmons, view, model=model, value=shown.quantity.value)
            panel.set_ylim(reach[shown.quantity])
    return figure


GAP = f"gap: Question-Anchored minus Answer-Anchored, in points of ΔP; {RULE_TITLES['replicate']}"


def draw_push(tables: Tables, view: View) -> Figure:
    """The honest gap as measured, and with what the knockout does to all examples alike taken out."""
    rows = view.of(tables["summary"]).filter(rule="replicate", labels="plotted", intervention=EXACT, anchor="gap")
    lines = [(f"gap, {title}", {"logits": logits}) for logits, title in TAKEN_OUT.items()]
    with grid(view, tables["summary"], lines, heading=GAP, row_height=0.8, together=1) as (figure, cells):
        for panel, cell in cells:
            for dataset, look in view.looks_of_datasets().items():
                mine = rows.filter(dataset=dataset, **cell).with_columns(sure=SURE)
                draw_curve(panel, mine, "delta_p", ends=("low", "high"), look=look, label=view.datasets[dataset])
                _draw_null(panel, mine, look)
            _name_dotted(panel, ONE_MECHANISM)
    return figure


def draw_words(tables: Tables, view: View) -> Figure:
    """The honest gap for each choice of the words that are cut: the finding must not hang on who chose them."""
    return _by_knockout(tables, view, list(CONTROLS))


def draw_windows(tables: Tables, view: View) -> Figure:
    """The honest gap where the exact words are cut in the last layers only, and in all of them."""
    known = tables["summary"]["intervention"].unique().to_list()
    return _by_knockout(tables, view, [*sorted(filter(window_of, known), key=lambda name: window_of(name) or 0), EXACT])


def _by_knockout(tables: Tables, view: View, knockouts: Sequence[str]) -> Figure:
    """The gap under the honest rule, a row of panels for each dataset, a curve for each knockout that was measured."""
    rows = view.of(tables["summary"]).filter(rule="replicate", labels="plotted", logits="measured", anchor="gap")
    measured = [name for name in knockouts if name in set(rows["intervention"])]
    lines = view.by_dataset("gap, {}")
    with grid(view, tables["summary"], lines, heading=GAP, row_height=0.7, together=1) as (figure, cells):
        for panel, cell in cells:
            for name, look in zip(measured, looks(view.style, len(measured)), strict=True):
                mine = rows.filter(intervention=name, **cell).with_columns(sure=SURE)
                draw_curve(panel, mine, "delta_p", ends=("low", "high"), look=look, label=intervention_title(name))
    return figure


def draw_lines(tables: Tables, view: View) -> Figure:
    """What the knockout does to each example: its logit under it against its clean one, and the curve of each kind."""
    examples = view.of(tables["deepest"]).filter(intervention=EXACT)
    verdicts = {pair: found.verdict for pair, found in judge_all(tables["accounts"]).items()}
    with grid(
        view,
        tables["summary"],
        view.by_dataset("{}, cut"),
        heading='logits of "hallucinated" with the exact question words cut, against clean ones; at the deepest layer',
        below="clean logit",
        level=None,
        row_height=0.8,
        sharex=False,
        sharey=False,
        together=1,
        last=UNCHANGED,
    ) as (figure, cells):
        for panel, cell in cells:
            mine = examples.filter(**cell)
            if not mine.is_empty():
                fitted = tables["accounts"].filter(layer=mine["layer"][0], **cell).row(0, named=True)
                verdict = verdicts.get((cell["model"], cell["dataset"]), "not judged")
                _draw_logits(panel, mine, fitted, pair=looks(view.style, len(ANCHOR_LETTERS)), verdict=verdict)
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
    _say_above(panel, f"layer {examples['layer'][0]}: {verdict}")


def draw_auc(tables: Tables, view: View) -> Figure:
    """How well the probes rank, clean and knocked out."""
    layers = view.of(tables["layers"]).with_columns(sure=pl.lit(True))
    salmons = tables["layers"].filter(intervention="clean")
    chosen = looks(view.style, len(ANCHOR_LETTERS) * len(view.datasets))
    heading = "clean, and with the exact question words cut; dotted: probes that learnt shuffled labels"
    lines: list[Strip] = [("AUC of the probe", {})]
    with grid(view, tables["summary"], lines, heading=heading, level=0.5, last=SHUFFLED) as (figure, cells):
        for panel, cell in cells:
            for number, (dataset, title) in enumerate(view.datasets.items()):
                of_question, of_answer = chosen[2 * number : 2 * number + 2]
                cut = {**of_answer, "color": of_question["color"]}
                mine = layers.filter(dataset=dataset, **cell).sort("layer")
                for intervention, look, state in (("clean", of_question, "clean"), (EXACT, cut, "cut")):
                    rows = mine.filter(intervention=intervention)
                    draw_curve(panel, rows, "auc", ends=("auc_low", "auc_high"), look=look, label=f"{title}, {state}")
                clean = mine.filter(intervention="clean")
                panel.plot(clean["layer"], clean["auc_shuffled"], color=of_question["color"], linestyle=":", marker="")
            _name_dotted(panel, SHUFFLED)
            _draw_salmons(panel, salmons, view, model=cell["model"], value="auc")
    return figure


def draw_share(tables: Tables, view: View) -> Figure:
    """How many examples are Question-Anchored at each layer."""
    rows = Shown().of(view.of(tables["summary"])).with_columns(pl.col("^share.*$") * 100).filter(anchor="question")
    lines: list[Strip] = [("Question-Anchored, %", {})]
    with grid(view, tables["summary"], lines, heading=RULE_TITLES["flip"], level=None, together=1) as (figure, cells):
        for panel, cell in cells:
            for dataset, look in view.looks_of_datasets().items():
                mine, ends = rows.filter(dataset=dataset, **cell), ("share_low", "share_high")
                draw_curve(panel, mine, "share", ends=ends, look=look, label=view.datasets[dataset])
        cells[0][0].set_ylim(0, None)
    return figure


def draw_grid(tables: Tables, view: View) -> Figure:
    """The published figure at every measured component (rows) and position (columns), one model below another."""
    summary = tables["summary"].filter(pl.col("model").is_in(list(view.models)))
    components, positions = (
        [name for name in known if name in set(summary[column])]
        for column, known in (("component", COMPONENTS), ("position", TEXT_ORDER))
    )
    models = view.by_model(summary)
    lines = [(f"ΔP, {name}", {"component": name, **model}) for _, model in models for name in components]
    columns: list[Strip] = [(name, {"position": name}) for name in positions]
    heading = f"{INTERVENTION_TITLES[EXACT]}; {RULE_TITLES['flip']}"
    with grid(view, tables["summary"], lines, columns, heading=heading, row_height=0.6, sharex="row") as (
        figure,
        cells,
    ):
        for panel, cell in cells:
            _draw_anchors(panel, summary.filter(**cell), view, Shown())
        for number, (title, _) in enumerate(models):
            first = number * len(components) * len(columns)
            name_panels(figure.axes[first : first + len(columns)], [f"{title}, {position}" for position in positions])
        cells[0][0].set_ylim(limits(summary))
    return figure


def draw_distribution(tables: Tables, view: View) -> Figure:
    """Every example's delta P at the deepest layer, under the knockout by anchor and under the control."""
    examples = view.of(tables["deepest"])
    with grid(
        view,
        tables["summary"],
        view.by_dataset("{}, %"),
        heading=f"at the deepest layer; {RULE_TITLES['flip']}",
        below="ΔP",
        level=None,
        row_height=0.45,
        sharex=True,
        together=1,
        last=CONTROL,
    ) as (figure, cells):
        for panel, cell in cells:
            mine = examples.filter(**cell)
            if not mine.is_empty():
                _draw_histogram(panel, mine, looks(view.style, len(ANCHOR_LETTERS)))
    return figure


def _draw_salmons(panel: Axes, rows: pl.DataFrame, view: View, *, model: str, value: str) -> None:
    """The same answers through random weights of the model's shape, a thin curve per dataset, where that was made."""
    for dataset, look in view.looks_of_datasets().items():
        mine = rows.filter(model=f"{model}{SALMON}", dataset=dataset, **vars(view.headline)).sort("layer")
        if not mine.is_empty():
            style = {"color": look["color"], "linestyle": "-.", "linewidth": 0.8, "marker": ""}
            panel.plot(mine["layer"], mine[value], **style)
            panel.plot([], [], **{**style, "color": GREY}, label=RANDOM_WEIGHTS)


def _draw_histogram(panel: Axes, examples: pl.DataFrame, pair: list[dict]) -> None:
    """Shares of all examples in steps of five points, one group stacked on the other, and the control's outline."""
    edges = list(range(-100, 51, 5))
    cut = examples.filter(intervention=EXACT)
    groups = [cut.filter(question_anchored=anchored)["delta_p"].to_numpy() for anchored in (True, False)]
    weights = [np.full(len(group), 100 / len(cut)) for group in groups]
    labels, colours = ["Question-Anchored", "Answer-Anchored"], [look["color"] for look in pair]
    panel.hist(groups, edges, weights=weights, stacked=True, color=colours, label=labels, linewidth=0)
    control = examples.filter(intervention="random_question")["delta_p"].to_numpy()
    shares = np.full(len(control), 100 / max(1, len(control)))
    panel.hist(control, edges, weights=shares, histtype="step", color="0.3", linewidth=0.8, label=CONTROL)
    _say_above(panel, f"layer {cut['layer'][0]}\n{len(cut)} examples")


def _say_above(panel: Axes, text: str) -> None:
    panel.text(0.02, 0.94, text, transform=panel.transAxes, va="top", fontsize="small")


def _draw_anchors(panel: Axes, rows: pl.DataFrame, view: View, shown: Shown, *, null: bool = False) -> None:
    """Two curves per dataset, from the rows of a model; with `null`, also where one mechanism would put them."""
    rows, quantity = shown.of(rows), shown.quantity
    series = [(dataset, anchor) for dataset in view.datasets for anchor in ANCHOR_LETTERS]
    for (dataset, anchor), look in zip(series, looks(view.style, len(series)), strict=True):
        mine = rows.filter(dataset=dataset, anchor=anchor)
        label = f"{ANCHOR_LETTERS[anchor]} {view.datasets[dataset]}"
        draw_curve(panel, mine, quantity.value, ends=(quantity.low, quantity.high), look=look, label=label)
        if null:
            _draw_null(panel, mine, look)
    if null:
        _name_dotted(panel, ONE_MECHANISM)


def _draw_null(panel: Axes, rows: pl.DataFrame, look: dict) -> None:
    """Where one mechanism would put a curve, where that is known."""
    band = rows.drop_nulls("null").sort("layer")
    layer, middle, low, high = (band[name].to_numpy() for name in ("layer", "null", "null_low", "null_high"))
    panel.fill_between(layer, low, high, color=GREY, alpha=0.15, linewidth=0, zorder=0)
    panel.plot(layer, middle, color=look["color"], linestyle=":", marker="")


def _name_dotted(panel: Axes, label: str) -> None:
    """One entry of the legend for the dotted lines of all colours."""
    panel.plot([], [], color=GREY, linestyle=":", marker="", label=label)


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
DRAW: dict[str, Callable[[Tables, View], Figure]] = {
    kind.name: getattr(experiments, f"draw_{kind.name}") if kind.experiment else globals()[f"draw_{kind.name}"]
    for kind in FIGURE_KINDS
} | {kind.name: getattr(detection, f"draw_{kind.name}") for kind in DETECTION_KINDS}
