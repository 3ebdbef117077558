"""Figures of what is behind the curves: the probes' AUC, the size of the groups, and single examples."""

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
import polars as pl
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from anchorscope.draw.facets import (
    Entry,
    curve_figure,
    entry,
    facet,
    finish,
    pandas_frame,
)
from anchorscope.draw.style import AXIS_GREY, DASH_DOTTED, DASHED, DOTTED, GREY, INK, SOLID, Dashes
from anchorscope.draw.titles import (
    ANCHOR_TITLES,
    CLEAN_LINE,
    CONTROL,
    CUT_LINE,
    LAYER,
    RANDOM_TWIN,
    RULE_TITLES,
    SHUFFLED_LABELS,
)
from anchorscope.draw.view import CurveFilter, Tables, View, title, with_values
from anchorscope.extract.axes import CONTROLS, EXACT
from anchorscope.summarise.verdict_on_kinds import TWO_KINDS, judge_accounts
from anchorscope.text.forms import CHOICE, HOW_MANY, WHEN, YES_OR_NO

ANSWERS = {False: "right answer", True: "hallucinated"}  # points of the first are filled, those of the second hollow
# Points have a shape for questions that leave few answers to choose from, and for dates and numbers.
OTHER_FORMS = "other questions"
FORM_TITLES = {YES_OR_NO: "yes or no", CHOICE: "choice", WHEN: "when, how many", HOW_MANY: "when, how many"}
FORM_MARKERS = {"yes or no": "^", "choice": "s", "when, how many": "P", OTHER_FORMS: "o"}
ONE_CURVE, KEPT_CURVE, LOST_CURVE, UNCHANGED = "all examples", "if evidence is kept", "if it is lost", "unchanged"
FITTED: dict[str, Dashes] = {KEPT_CURVE: SOLID, LOST_CURVE: DASHED, ONE_CURVE: DASH_DOTTED}
ROOMY = 300  # points in a panel; more of them are smaller and more transparent
VECTOR_POINTS = 3000  # in a figure; more of them are drawn as an image, so that files stay small
BIN, HATCH = 5, "/////"  # points of ΔP in a bar; bars of Answer-Anchored


def draw_auc(tables: Tables, view: View) -> Figure:
    """Draw how well the probes rank, clean and with the question cut."""
    layers = view.select(tables["layers"])
    clean, cut = (layers.filter(intervention=name) for name in ("clean", EXACT))
    twins = view.random_twins(tables["layers"]).filter(intervention="clean")
    rows = pl.concat(
        [
            with_values(clean, "auc", "auc_low", "auc_high", line=CLEAN_LINE),
            with_values(cut, "auc", "auc_low", "auc_high", line=CUT_LINE),
            with_values(clean, "auc_shuffled", line=SHUFFLED_LABELS),
            with_values(twins, "auc", line=RANDOM_TWIN),
        ],
        how="vertical_relaxed",
    ).with_columns(sure=True, level=0.5)
    heading = "clean, and with the exact question words cut; dotted: probes that learnt shuffled labels"
    return curve_figure(rows, view, heading, labels=(LAYER, "AUC of the probe"))


def draw_share(tables: Tables, view: View) -> Figure:
    """Draw how many examples are Question-Anchored at each layer."""
    rows = CurveFilter().select(view.select(tables["summary"])).filter(anchor="question")
    shares = with_values(rows.with_columns(pl.col("^share.*$") * 100), "share", "share_low", "share_high")
    return curve_figure(shares, view, RULE_TITLES["flip"], labels=(LAYER, "Question-Anchored, %"))


def draw_lines(tables: Tables, view: View) -> Figure:
    """Draw each example's logit with the question cut against its clean one, and the curves of the winning model."""
    forms = pl.col("question_form").replace_strict(FORM_TITLES, default=OTHER_FORMS, return_dtype=pl.String)
    examples = tables["deepest"].filter(intervention=EXACT).with_columns(form=forms)
    # Names beside titles, because verdicts and fitted curves are looked up by them.
    rows = view.select(examples.with_columns(model_name="model", dataset_name="dataset"))
    judgements = judge_accounts(tables["accounts"])
    as_image = len(rows) > VECTOR_POINTS
    colours = list(view.palette(list(ANSWERS.values())).values())

    def draw(panel: Axes, panel_rows: pl.DataFrame) -> str:
        model, dataset, layer = panel_rows.select("model_name", "dataset_name", "layer").row(0)
        verdict = judgements[model, dataset].verdict
        _draw_points(panel, panel_rows, colours, as_image=as_image)
        fitted = tables["accounts"].filter(model=model, dataset=dataset, layer=layer)
        _draw_fitted(panel, fitted.row(0, named=True), verdict)
        return f"layer {layer}: {verdict}"

    figure = facet(rows, view, draw, row=["dataset"], labels=("clean logit", "logit, cut"), height=0.9, share="none")
    heading = 'logits of "hallucinated" with the exact question words cut, against clean ones; at the deepest layer'
    return finish(figure, view, heading, _point_entries(colours))


def _draw_points(panel: Axes, examples: pl.DataFrame, colours: Sequence[str], *, as_image: bool) -> None:
    """Draw a point per example under the first prompt: colour and filling by the answer, shape by the question."""
    room = min(1.0, ROOMY / len(examples))
    size = room * 1.7 * matplotlib.rcParams["lines.markersize"] ** 2
    look: dict[str, Any] = {"s": size, "linewidth": 0.5, "rasterized": as_image, "legend": False, "ax": panel}
    columns = {"x": "logit_clean_first", "y": "logit_ko_first", "hue": "hallucinated"}
    palette = dict(zip(ANSWERS, colours, strict=True))
    for same_form in examples.partition_by("form"):  # because then the points of an SVG share their outline
        sns.scatterplot(
            pandas_frame(same_form), **columns, palette=palette, marker=FORM_MARKERS[same_form["form"][0]], **look
        )
        points = panel.collections[-1]
        faces: Any = points.get_facecolor()
        faces[:, 3] = 0.8 * room**0.25
        points.set_edgecolor(faces.copy())
        faces[same_form["hallucinated"].to_numpy(), 3] = 0
        points.set_facecolor(faces)


def _draw_fitted(panel: Axes, fitted: dict, verdict: str) -> None:
    """Draw the fitted curves of the model that explains the points, and where points would be if nothing changed."""
    is_two = verdict == TWO_KINDS
    curve, name = (fitted["kept_curve"], KEPT_CURVE) if is_two else (fitted["one_curve"], ONE_CURVE)
    line: dict[str, Any] = {"color": INK, "linewidth": 1}
    sns.lineplot(x=fitted["at_clean"], y=curve, linestyle=(0, FITTED[name] or None), estimator=None, ax=panel, **line)
    if is_two:
        panel.axhline(fitted["level_lost"], linestyle=(0, FITTED[LOST_CURVE]), **line)
    panel.axline((0, 0), slope=1, linestyle=":", color=AXIS_GREY, linewidth=0.8)
    panel.axhline(0, color=AXIS_GREY, linewidth=0.6, zorder=0)
    panel.axvline(0, color=AXIS_GREY, linewidth=0.6, zorder=0)


def _point_entries(colours: Sequence[str]) -> list[Entry]:
    """Return the legend of points and fitted curves."""
    points = [
        entry(name, colour, marker="o", hollow=is_hallucinated)
        for (is_hallucinated, name), colour in zip(ANSWERS.items(), colours, strict=True)
    ]
    shapes = [entry(form, GREY, marker=marker) for form, marker in FORM_MARKERS.items()]
    curves = [entry(name, INK, dashes=dashes) for name, dashes in FITTED.items()]
    return [*points, *shapes, *curves, entry(UNCHANGED, AXIS_GREY, dashes=DOTTED)]


def draw_distribution(tables: Tables, view: View) -> Figure:
    """Draw every example's ΔP at the deepest layer, under the knockout by group and under the control."""
    rows = view.select(tables["deepest"])
    anchored = pl.when("question_anchored").then(pl.lit("question")).otherwise(pl.lit("answer"))
    rows = title(rows.with_columns(anchor=anchored), "anchor", ANCHOR_TITLES)
    bins = np.floor(rows["delta_p"].to_numpy() / BIN)
    ends = BIN * bins.min(initial=0), BIN * (bins.max(initial=0) + 1)
    shared: dict[str, Any] = {"x": "delta_p", "stat": "percent", "binwidth": BIN, "binrange": ends, "legend": False}
    palette = view.palette(list(ANCHOR_TITLES.values()))

    def draw(panel: Axes, panel_rows: pl.DataFrame) -> str:
        exact, control = (panel_rows.filter(intervention=name) for name in (EXACT, CONTROLS[EXACT]))
        stack: dict[str, Any] = {"hue_order": list(palette), "multiple": "stack", "alpha": 1, "linewidth": 0}
        sns.histplot(pandas_frame(exact), hue="anchor", palette=palette, **stack, **shared, ax=panel)
        if ANCHOR_TITLES["answer"] in exact["anchor"]:  # the last group is drawn first
            for bar in panel.containers[0]:
                bar.set(hatch=HATCH, edgecolor="white")
        if len(control):
            outline: dict[str, Any] = {"element": "step", "fill": False, "color": INK, "linewidth": 0.8}
            sns.histplot(pandas_frame(control), **outline, **shared, ax=panel)
        return f"layer {exact['layer'][0]}, n = {len(exact)}"

    figure = facet(rows, view, draw, row=["dataset"], labels=("ΔP", "examples, %"), height=0.7)
    bars: list[Entry] = [
        Patch(facecolor=colour, edgecolor="white", hatch=hatch, label=name)
        for (name, colour), hatch in zip(palette.items(), (None, HATCH), strict=True)
    ]
    heading = f"at the deepest layer; {RULE_TITLES['flip']}"
    return finish(figure, view, heading, [*bars, entry(CONTROL, INK, dashes=SOLID)])
