"""The figures: delta P against layer as published, its honest companion, and what is behind them.

Each `draw_` function draws one kind of figure from the run's tables, with one panel per model. To add a kind, write
such a function and add a record to `kinds.FIGURE_KINDS`.
"""

import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anchorscope.draw import detection, experiments
from anchorscope.draw.kinds import DETECTION_KINDS, FIGURE_KINDS
from anchorscope.draw.panels import (
    ANCHOR_LETTERS,
    FEW,
    GREY,
    NULL_LABEL,
    Series,
    Style,
    Tables,
    View,
    changed_settings,
    draw_curves,
    grid,
    looks,
    name_lines,
    read_style,
    write_over,
)
from anchorscope.extract.axes import COMPONENTS, CONTROLS, EXACT, Headline, window_of
from anchorscope.files.arguments import is_list, is_text
from anchorscope.files.faults import shortened
from anchorscope.models.manifest import SALMON
from anchorscope.summarise.verdict_on_kinds import TWO_KINDS, judge_accounts
from anchorscope.text.forms import CHOICE, HOW_MANY, WHEN, YES_OR_NO


@dataclass(frozen=True)
class Quantity:
    """What a curve shows: its name on the axis, and the columns that hold it and its interval."""

    title: str
    value: str
    low: str
    high: str


TEXT_ORDER = ("before_answer", "answer_last", "final")  # of the positions
FIRM = (pl.col("n") >= FEW) & pl.col("better_than_chance")  # the rest is drawn faint
CONTROL = "control"
SHUFFLED_LABEL = "shuffled labels"
SALMON_LABEL = "random weights"
UNCHANGED = "unchanged"
ANCHOR_TITLES = {"question": "Question-Anchored", "answer": "Answer-Anchored"}
ANSWERS = {False: "right answer", True: "hallucinated"}  # points of the first are filled, those of the second hollow
# Points have a shape for questions that leave few answers to choose from, and for dates and numbers.
FORM_SHAPES = {"yes or no": ("^", [YES_OR_NO]), "choice": ("s", [CHOICE]), "when, how many": ("P", [WHEN, HOW_MANY])}
KIND_CURVES = ("all examples", "if evidence is kept", "if it is lost")
OTHER_FORMS, OTHER_SHAPE = "other questions", "o"
ROOMY = 300  # points in a panel; more of them are smaller and more transparent
VECTOR_POINTS = 3000  # in a figure; more of them are drawn as an image, so that files stay small
BIN = 5  # points of ΔP in a bar
RULE_TITLES = {
    "flip": "anchors by verdict flip at each layer",
    "fixed": "anchors by verdict flip at the reference layer",
    "crossfit": "anchors labelled and measured by different probes",
    "honest": "anchors labelled and measured by different probes under different prompts",
}
TAKEN_OUT = {
    "measured": "as measured",
    "recentred": "without the common push",
    "residual": "without the common push and slope",
}
QUANTITY_COLUMNS = {
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
    quantity: Quantity = QUANTITY_COLUMNS["delta_p"]

    def of(self, rows: pl.DataFrame) -> pl.DataFrame:
        """These curves' rows; those not `sure` are drawn faint."""
        labels = "reference" if self.rule == "fixed" else "plotted"
        wanted = {"rule": self.rule, "labels": labels, "intervention": self.intervention, "logits": self.logits}
        return rows.filter(**wanted).with_columns(sure=FIRM)


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
    if not isinstance(quantity, str) or quantity not in QUANTITY_COLUMNS:
        raise ValueError(f"There is no quantity {shortened(quantity)}; there are {', '.join(QUANTITY_COLUMNS)}.")
    if not is_text(note):
        raise ValueError(f"note is {reprlib.repr(note)}; it must be a text.")
    view = View(
        models=_titles(summary, "model", models),
        datasets=_titles(summary, "dataset", datasets),
        headline=Headline(component, position),
        note=note,
        style=style if isinstance(style, Style) else read_style(style, changed=changed_settings()),
    )
    return _family(summary, view, Shown(rule, intervention, logits, QUANTITY_COLUMNS[quantity]))


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
    rows = view.of(summary)
    curves = zip(view.both_anchors(), cycle(view.style.published), strict=False)  # over again where it has fewer
    published = [(wanted, look, label) for (wanted, _, label), look in curves]
    common = "" if shown.logits == "measured" else f"; {TAKEN_OUT[shown.logits]}"
    return grid(
        view,
        summary,
        [(shown.quantity.title, {})],
        lambda panel, cell: _draw_anchors(panel, rows.filter(**cell), published, shown),
        heading=f"{intervention_title(shown.intervention)}; {RULE_TITLES[shown.rule]}{common}",
        ylim=limits(shown.of(rows), shown.quantity, null=False),
    )


def draw_family(tables: Tables, view: View) -> Figure:
    """The published figure: anchors by verdict flip at each layer."""
    return _family(tables["summary"], view, Shown())


def draw_honest(tables: Tables, view: View) -> Figure:
    """What survives when one prompt labels and another measures, beside what one mechanism would show; the control.

    A row of panels for each dataset, and a last one with the control of all.
    """
    summary = tables["summary"]
    rows = view.of(summary)
    honest = Shown(rule="honest")
    control = replace(honest, intervention="random_question")
    salmons = honest.of(summary).filter(anchor="question")

    def draw(panel: Axes, cell: Mapping[str, Any]) -> None:
        mine = rows.filter(**cell)
        if "dataset" in cell:
            series = [curve for curve in view.both_anchors() if curve[0]["dataset"] == cell["dataset"]]
            _draw_anchors(panel, mine, series, honest, null=True)
            for title, line in zip(ANCHOR_TITLES.values(), ("-", "--"), strict=True):
                name_lines(panel, title, line)
            _draw_salmons(panel, salmons.filter(dataset=cell["dataset"]), view, model=cell["model"], value="delta_p")
        else:
            _draw_anchors(panel, mine, view.both_anchors(), control)

    return grid(
        view,
        summary,
        [*view.by_dataset("{}"), (CONTROL, {})],
        draw,
        beside="ΔP",
        heading=f"{RULE_TITLES['honest']}; {CONTROL}: as many other words cut",
        first_height=0.8,
        row_height=0.45,
        sharey="scale",
        key=[*ANCHOR_TITLES.values(), NULL_LABEL, SALMON_LABEL],
        together=1,
    )


GAP, GAP_UNIT = f"gap: Question-Anchored minus Answer-Anchored; {RULE_TITLES['honest']}", "gap, points of ΔP"


def draw_push(tables: Tables, view: View) -> Figure:
    """The honest gap as measured, and with what the knockout does to all examples alike taken out."""
    rows = _gaps(tables, view).filter(intervention=EXACT)
    return grid(
        view,
        tables["summary"],
        [(title, {"logits": logits}) for logits, title in TAKEN_OUT.items()],
        lambda panel, cell: draw_curves(panel, rows.filter(**cell), view.one_per_dataset(), "delta_p", null=True),
        heading=GAP,
        beside=GAP_UNIT,
        row_height=0.6,
        sharey="scale",
        together=1,
    )


def _gaps(tables: Tables, view: View) -> pl.DataFrame:
    """The gaps under the honest rule."""
    return view.of(tables["summary"]).filter(rule="honest", labels="plotted", anchor="gap").with_columns(sure=FIRM)


def draw_words(tables: Tables, view: View) -> Figure:
    """The honest gap for each choice of the words that are cut: the finding must not hang on who chose them."""
    return _by_knockout(tables, view, {name: INTERVENTION_TITLES[name] for name in CONTROLS}, GAP)


def draw_windows(tables: Tables, view: View) -> Figure:
    """The honest gap where the exact words are cut in the last layers only, and in all of them."""
    windows = {name: window_of(name) or 0 for name in tables["summary"]["intervention"].unique()}
    titles = {
        name: f"cut in the last {window} layers up to it" if window > 1 else "cut in the layer plotted"
        for name, window in sorted(windows.items(), key=lambda item: item[1])
        if window
    }
    heading = f"{INTERVENTION_TITLES[EXACT]}; {GAP}"
    return _by_knockout(tables, view, {**titles, EXACT: "cut in all layers"}, heading)


def _by_knockout(tables: Tables, view: View, titles: Mapping[str, str], heading: str) -> Figure:
    """The honest gap, a row of panels for each dataset, a curve for each knockout that was measured."""
    rows = _gaps(tables, view).filter(logits="measured")
    measured = {name: title for name, title in titles.items() if name in set(rows["intervention"])}
    series = view.series("intervention", measured)
    return grid(
        view,
        tables["summary"],
        view.by_dataset("{}"),
        lambda panel, cell: draw_curves(panel, rows.filter(**cell), series, "delta_p"),
        heading=heading,
        beside=GAP_UNIT,
        first_height=0.8,
        row_height=0.5,
        sharey="scale",
        together=1,
    )


def draw_lines(tables: Tables, view: View) -> Figure:
    """What the knockout does to each example: its logit under it against its clean one, and the curve of each kind."""
    examples = view.of(tables["deepest"]).filter(intervention=EXACT)
    verdicts = {pair: found.verdict for pair, found in judge_accounts(tables["accounts"]).items()}
    many = len(examples) > VECTOR_POINTS

    def draw(panel: Axes, cell: Mapping[str, Any]) -> None:
        mine = examples.filter(**cell)
        if not mine.is_empty():
            fitted = tables["accounts"].filter(layer=mine["layer"][0], **cell).row(0, named=True)
            verdict = verdicts.get((cell["model"], cell["dataset"]), "not judged")
            _draw_points(panel, mine, looks(view.style, len(ANSWERS)), as_image=many)
            _draw_kinds(panel, fitted, verdict)
            write_over(panel, f"layer {mine['layer'][0]}: {verdict}")

    return grid(
        view,
        tables["summary"],
        view.by_dataset("{}, cut"),
        draw,
        heading='logits of "hallucinated" with the exact question words cut, against clean ones; at the deepest layer',
        below="clean logit",
        level=None,
        first_height=0.9,
        row_height=0.65,
        sharex=False,
        sharey=False,
        key=[*ANSWERS.values(), *FORM_SHAPES, OTHER_FORMS, *KIND_CURVES, UNCHANGED],
    )


def _draw_points(panel: Axes, examples: pl.DataFrame, pair: list[dict], *, as_image: bool) -> None:
    """One point per example under the first prompt: its colour and filling by the answer, its shape by the question."""
    room = min(1.0, ROOMY / len(examples))
    legend_size = 1.3 * matplotlib.rcParams["lines.markersize"]
    size = room**0.5 * legend_size**2
    shapes = {form: shape for shape, forms in FORM_SHAPES.values() for form in forms}
    shaped = examples.with_columns(
        shape=pl.col("question_form").replace_strict(shapes, default=OTHER_SHAPE, return_dtype=pl.String)
    )
    for look, (wrong, label) in zip(pair, ANSWERS.items(), strict=True):
        face = {"facecolors": "none" if wrong else look["color"], "edgecolors": look["color"]}
        style = {**face, "linewidths": 0.5 if wrong else 0, "alpha": 0.8 * room**0.25}
        for (shape,), some in shaped.filter(hallucinated=wrong).group_by("shape", maintain_order=True):
            clean, cut = (some[f"logit_{state}_first"].to_numpy() for state in ("clean", "ko"))
            panel.scatter(clean, cut, s=size, marker=shape, **style, rasterized=as_image)
        face = {"markerfacecolor": "none" if wrong else look["color"], "markeredgecolor": look["color"]}
        panel.plot(
            [], [], linestyle="", marker=OTHER_SHAPE, markersize=legend_size, markeredgewidth=0.7, **face, label=label
        )
    names = {shape: title for title, (shape, _) in FORM_SHAPES.items()} | {OTHER_SHAPE: OTHER_FORMS}
    for shape in shaped["shape"].unique(maintain_order=True):
        panel.plot([], [], linestyle="", marker=shape, markersize=legend_size, color=GREY, label=names[shape])


def _draw_kinds(panel: Axes, fitted: dict, verdict: str) -> None:
    """The curve of each kind that is seen, and where points would be if nothing changed."""
    one, kept, lost = KIND_CURVES
    style: dict[str, Any] = {"color": "0.15", "linewidth": 1.0, "marker": ""}
    if verdict == TWO_KINDS:
        panel.plot(fitted["at_clean"], fitted["kept_curve"], "-", **style, label=kept)
        panel.axhline(fitted["level_lost"], linestyle="--", **style, label=lost)
    else:
        panel.plot(fitted["at_clean"], fitted["one_curve"], "-.", **style, label=one)
    panel.axline((0, 0), slope=1, linestyle=":", color="0.6", linewidth=0.8, marker="", label=UNCHANGED)
    panel.axhline(0, color="0.6", linewidth=0.6, zorder=0)
    panel.axvline(0, color="0.6", linewidth=0.6, zorder=0)


def draw_auc(tables: Tables, view: View) -> Figure:
    """How well the probes rank, clean and knocked out."""
    layers = view.of(tables["layers"]).with_columns(sure=pl.lit(True))
    salmons = tables["layers"].filter(intervention="clean")
    states = {"clean": "-", "cut": "--", SHUFFLED_LABEL: ":"}

    def draw(panel: Axes, cell: Mapping[str, Any]) -> None:
        for dataset, look, title in view.one_per_dataset():
            mine = layers.filter(**dataset, **cell).sort("layer")
            both: list[Series] = [
                ({"intervention": "clean"}, look, f"{title}, clean"),
                ({"intervention": EXACT}, {**look, "linestyle": "--"}, f"{title}, cut"),
            ]
            draw_curves(panel, mine, both, "auc", ("auc_low", "auc_high"))
            panel.plot([], [], **look, label=title)
            clean = mine.filter(intervention="clean")
            panel.plot(clean["layer"], clean["auc_shuffled"], color=look["color"], linestyle=":", marker="")
        for label, line in states.items():
            name_lines(panel, label, line)
        _draw_salmons(panel, salmons, view, model=cell["model"], value="auc")

    return grid(
        view,
        tables["summary"],
        [("AUC of the probe", {})],
        draw,
        heading="clean, and with the exact question words cut; dotted: probes that learnt shuffled labels",
        level=0.5,
        key=[*view.datasets.values(), *states, SALMON_LABEL],
    )


def draw_share(tables: Tables, view: View) -> Figure:
    """How many examples are Question-Anchored at each layer."""
    rows = Shown().of(view.of(tables["summary"])).with_columns(pl.col("^share.*$") * 100).filter(anchor="question")
    series, ends = view.one_per_dataset(), ("share_low", "share_high")
    return grid(
        view,
        tables["summary"],
        [("Question-Anchored, %", {})],
        lambda panel, cell: draw_curves(panel, rows.filter(**cell), series, "share", ends),
        heading=RULE_TITLES["flip"],
        level=None,
        ylim=(0, None),
        together=1,
    )


def draw_grid(tables: Tables, view: View) -> Figure:
    """The published figure at every measured component (rows) and position (columns), one model below another."""
    summary = tables["summary"].filter(pl.col("model").is_in(list(view.models)))
    components, positions = (
        [name for name in known if name in set(summary[column])]
        for column, known in (("component", COMPONENTS), ("position", TEXT_ORDER))
    )
    lines = [
        (f"{title}, {name}", {**model, "component": name})
        for title, model in view.by_model(summary)
        for name in components
    ]
    return grid(
        view,
        tables["summary"],
        lines,
        lambda panel, cell: _draw_anchors(panel, summary.filter(**cell), view.both_anchors(), Shown()),
        columns=[(name, {"position": name}) for name in positions],
        heading=f"{INTERVENTION_TITLES[EXACT]}; {RULE_TITLES['flip']}",
        beside="ΔP",
        row_height=0.5,
        sharex="row",
        sharey="scale",
    )


def draw_distribution(tables: Tables, view: View) -> Figure:
    """Every example's delta P at the deepest layer, under the knockout by anchor and under the control."""
    examples = view.of(tables["deepest"])
    bins = np.floor(examples["delta_p"].to_numpy() / BIN)
    edges = (BIN * np.arange(bins.min(initial=0), bins.max(initial=0) + 2)).tolist()

    def draw(panel: Axes, cell: Mapping[str, Any]) -> None:
        mine = examples.filter(**cell)
        if not mine.is_empty():
            _draw_histogram(panel, mine, edges, looks(view.style, len(ANCHOR_TITLES)))

    return grid(
        view,
        tables["summary"],
        view.by_dataset("{}, %"),
        draw,
        heading=f"at the deepest layer; {RULE_TITLES['flip']}",
        below="ΔP",
        level=None,
        first_height=0.8,
        row_height=0.38,
        sharex=True,
        sharey="row",
        together=1,
        last=CONTROL,
    )


def _draw_salmons(panel: Axes, rows: pl.DataFrame, view: View, *, model: str, value: str) -> None:
    """The same answers through random weights of the model's shape, a thin curve per dataset, where that was made."""
    for wanted, look, _ in view.one_per_dataset():
        mine = rows.filter(model=f"{model}{SALMON}", **wanted, **vars(view.headline)).sort("layer")
        if not mine.is_empty():
            style = {"color": look["color"], "linestyle": "-.", "linewidth": 0.8, "marker": ""}
            panel.plot(mine["layer"], mine[value], **style)
            panel.plot([], [], **{**style, "color": GREY}, label=SALMON_LABEL)


def _draw_histogram(panel: Axes, examples: pl.DataFrame, edges: Sequence[float], pair: list[dict]) -> None:
    """Shares of all examples between edges, one group stacked on the other and hatched, and the control's outline."""
    cut = examples.filter(intervention=EXACT)
    groups = [cut.filter(question_anchored=anchored)["delta_p"].to_numpy() for anchored in (True, False)]
    weights = [np.full(len(group), 100 / len(cut)) for group in groups]
    colours = [look["color"] for look in pair]
    panel.hist(
        groups, edges, weights=weights, stacked=True, color=colours, label=[*ANCHOR_TITLES.values()], linewidth=0
    )
    for bar in panel.containers[-1]:
        bar.set(hatch="/////", edgecolor="white")
    control = examples.filter(intervention="random_question")["delta_p"].to_numpy()
    shares = np.full(len(control), 100 / max(1, len(control)))
    panel.hist(control, edges, weights=shares, histtype="step", color="0.3", linewidth=0.8, label=CONTROL)
    write_over(panel, f"layer {cut['layer'][0]}, n = {len(cut)}")


def _draw_anchors(panel: Axes, rows: pl.DataFrame, series: list[Series], shown: Shown, *, null: bool = False) -> None:
    """Two curves per dataset, from the rows of a model; with `null`, also where one mechanism would put them."""
    ends = (shown.quantity.low, shown.quantity.high)
    draw_curves(panel, shown.of(rows), series, shown.quantity.value, ends, null=null)


def limits(
    rows: pl.DataFrame, quantity: Quantity = QUANTITY_COLUMNS["delta_p"], *, null: bool = True
) -> tuple[float, float]:
    """The y axis that holds all curves and bands of some rows, with `null` also where one mechanism would put them."""
    drawn = rows.filter(pl.col("anchor").is_in(list(ANCHOR_LETTERS)))
    banded = drawn.filter(pl.col("n") >= FEW)
    bands = [banded[quantity.low], banded[quantity.high]]
    if null and quantity.value == "delta_p":
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
