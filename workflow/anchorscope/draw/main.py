"""The main figures: ΔP against layer as published, its honest companion, and the honest gap under other choices."""

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import cycle, product
from pathlib import Path

import polars as pl
from matplotlib.figure import Figure

from anchorscope.draw.facets import LINE_DASHES, curve_figure, draw_curves, entry, facet, finish, style_context
from anchorscope.draw.style import Style, changed_settings, read_style
from anchorscope.draw.titles import (
    ANCHOR_LETTERS,
    ANCHOR_TITLES,
    CONTROL,
    IF_ONE_MECHANISM,
    INTERVENTION_TITLES,
    LAYER,
    RANDOM_TWIN,
    RULE_TITLES,
    TAKEN_OUT,
    TEXT_ORDER,
    intervention_title,
    window_title,
)
from anchorscope.draw.view import (
    CONFIDENCE,
    FIRM,
    QUANTITY_COLUMNS,
    CurveFilter,
    Quantity,
    Tables,
    View,
    group_rows,
    measured,
    title,
    with_values,
)
from anchorscope.extract.axes import COMPONENTS, CONTROLS, EXACT, Headline, window_of
from anchorscope.files.arguments import check_known, choose_titles, is_text

PUBLISHED_CURVES = {
    "rule": "flip",
    "intervention": EXACT,
    "logits": "measured",
    "component": "resid",
    "position": "answer_last",
}
HONEST_CURVES = CurveFilter(rule="honest")
GAP = f"gap: Question-Anchored minus Answer-Anchored; {RULE_TITLES['honest']}"
GAP_LABELS = LAYER, "gap, points of ΔP"


def plot_family(
    summary: pl.DataFrame,
    models: Sequence[str] | Mapping[str, str] | None = None,
    datasets: Sequence[str] | Mapping[str, str] | None = None,
    *,
    quantity: str = "delta_p",
    note: str = "",
    style: Style | Path | str | None = None,
    **curves: str,
) -> Figure:
    """Draw delta P against layer: one panel per model, Question-Anchored solid, Answer-Anchored dashed, 95 % bands.

    Args:
        summary: What `load_summary` returns.
        models: Names in the summary, or names with the titles to show. Without them, all models are shown.
        datasets: The same for datasets. The legend has them in this order.
        quantity: "delta_p", or "delta_logit": how far the logit moves towards the clean verdict.
        note: A sentence to write on the figure.
        style: A style file, or the name of one of matplotlib's styles. Without it, the bundled style is used, and what
            `rcParams` or `plt.style.context` change.
        **curves: Other values of the summary's columns `rule`, `intervention`, `logits`, `component` and `position`.
            The published figure has "flip", "exact_question", "measured", "resid" and "answer_last".

    Returns:
        A figure. Its own `savefig` is fine for PNG. `facets.save` writes SVG and PDF with real text, as the workflow
        does. Groups of fewer than 20 examples, and layers whose probe is no better than chance, are drawn faint. The
        figure itself says where weights are random, where questions are bundled and what is cut in which layers.
    """
    for column in curves:
        check_known("plot_family", "argument", column, list(PUBLISHED_CURVES))
    choice = {**PUBLISHED_CURVES, **curves}
    for column, name in choice.items():
        check_known("The summary", column, name, summary[column].unique(maintain_order=True).to_list())
    check_known("plot_family", "quantity", quantity, list(QUANTITY_COLUMNS))
    if not is_text(note):
        raise ValueError(f"note is {reprlib.repr(note)}; it must be a text.")
    view = View(
        models=_titles(summary, "model", models),
        datasets=_titles(summary, "dataset", datasets),
        headline=Headline(choice.pop("component"), choice.pop("position")),
        note=note,
        style=style if isinstance(style, Style) else read_style(style, changed=changed_settings()),
    )
    with style_context(view.style):
        return _draw_published(summary, view.with_warnings(summary), CurveFilter(**choice), QUANTITY_COLUMNS[quantity])


def _titles(summary: pl.DataFrame, column: str, names: Sequence[str] | Mapping[str, str] | None) -> dict[str, str]:
    """Return the titles of names in a column of the summary, where each name is its own title."""
    known = summary[column].unique(maintain_order=True)
    return choose_titles("The summary", column, names, dict(zip(known, known, strict=True)))


def _draw_published(summary: pl.DataFrame, view: View, curves: CurveFilter, quantity: Quantity = CONFIDENCE) -> Figure:
    """Draw both groups of every dataset with the published figure's colours, lines and legend."""
    pairs = list(product(view.datasets.values(), ANCHOR_LETTERS))
    labels = [f"{ANCHOR_LETTERS[anchor]}-Anchored ({dataset})" for dataset, anchor in pairs]
    palette = dict(zip(labels, cycle(view.style.published), strict=False))
    letter = pl.col("anchor").replace_strict(ANCHOR_LETTERS)
    rows = group_rows(view.select(curves.select(summary)), quantity)
    rows = rows.with_columns(curve=pl.format("{}-Anchored ({})", letter, "dataset"))
    figure = facet(
        rows,
        view,
        lambda panel, panel_rows: draw_curves(panel, panel_rows, palette, hue="curve", marked=False),
        labels=(LAYER, quantity.title),
    )
    adjustment = "" if curves.logits == "measured" else f"; {TAKEN_OUT[curves.logits]}"
    heading = f"{intervention_title(curves.intervention)}; {RULE_TITLES[curves.rule]}{adjustment}"
    entries = [
        entry(label, palette[label], dashes=LINE_DASHES[ANCHOR_TITLES[anchor]])
        for label, (_, anchor) in zip(labels, pairs, strict=True)
    ]
    return finish(figure, view, heading, entries)


def draw_family(tables: Tables, view: View) -> Figure:
    """Draw the published figure: anchors by verdict flip at each layer."""
    return _draw_published(tables["summary"], view, CurveFilter())


def draw_honest(tables: Tables, view: View) -> Figure:
    """Draw what survives when one prompt labels and another measures, beside what one mechanism would give.

    A row of panels for each dataset, and a last one with the control of all.
    """
    curves = HONEST_CURVES.select(tables["summary"])
    groups = group_rows(view.select(curves))
    twins = group_rows(view.random_twins(curves)).filter(anchor="question")
    parts = [groups, _simulated(groups), with_values(twins, "delta_p", line=RANDOM_TWIN)]
    datasets = pl.concat(parts).with_columns(row=pl.col("dataset").cast(pl.String))
    control = group_rows(view.select(replace(HONEST_CURVES, intervention=CONTROLS[EXACT]).select(tables["summary"])))
    rows = pl.concat([datasets, control.with_columns(row=pl.lit(CONTROL))])
    rows = rows.with_columns(pl.col("row").cast(pl.Enum([*view.datasets.values(), CONTROL])))
    heading = f"{RULE_TITLES['honest']}; {CONTROL}: as many other words cut"
    return curve_figure(rows, view, heading, row=["row"], labels=(LAYER, "ΔP"), height=0.65, share="all")


def _simulated(rows: pl.DataFrame) -> pl.DataFrame:
    """Return where one mechanism alone would put curves."""
    return with_values(rows.drop_nulls("null"), "null", "null_low", "null_high", line=IF_ONE_MECHANISM)


def _gaps(tables: Tables, view: View) -> pl.DataFrame:
    """Return the gaps under the honest rule."""
    gaps = tables["summary"].filter(rule="honest", labels="plotted", anchor="gap").with_columns(sure=FIRM)
    return with_values(view.select(gaps), "delta_p", "low", "high")


def draw_push(tables: Tables, view: View) -> Figure:
    """Draw the honest gap as measured, and without what the knockout does to all examples alike."""
    gaps = title(_gaps(tables, view).filter(intervention=EXACT), "logits", TAKEN_OUT)
    rows = pl.concat([gaps, _simulated(gaps)])
    return curve_figure(rows, view, GAP, row=["logits"], labels=GAP_LABELS, height=0.85, share="all")


def draw_words(tables: Tables, view: View) -> Figure:
    """Draw the honest gap for each choice of the words that are cut: the finding must not hang on who chose them."""
    return _draw_knockouts(tables, view, {name: INTERVENTION_TITLES[name] for name in CONTROLS}, GAP)


def draw_windows(tables: Tables, view: View) -> Figure:
    """Draw the honest gap where the exact words are cut in the last layers only, and in all of them."""
    windows = {name: window_of(name) or 0 for name in tables["summary"]["intervention"].unique()}
    titles = {name: window_title(windows[name]) for name in sorted(windows, key=windows.__getitem__) if windows[name]}
    return _draw_knockouts(tables, view, {**titles, EXACT: "cut in all layers"}, f"{INTERVENTION_TITLES[EXACT]}; {GAP}")


def _draw_knockouts(tables: Tables, view: View, titles: Mapping[str, str], heading: str) -> Figure:
    """Draw the honest gap, a row of panels for each dataset, a curve for each knockout that was measured."""
    gaps = _gaps(tables, view).filter(logits="measured")
    rows = title(gaps, "intervention", measured(gaps, "intervention", titles))
    return curve_figure(
        rows, view, heading, hue="intervention", row=["dataset"], labels=GAP_LABELS, height=0.7, share="all"
    )


def draw_grid(tables: Tables, view: View) -> Figure:
    """Draw the published curves at every measured component and position, one model below another."""
    rows = group_rows(view.with_titles(CurveFilter().select(tables["summary"])))
    for column, names in (("component", COMPONENTS), ("position", TEXT_ORDER)):
        rows = title(rows, column, measured(rows, column, {name: name for name in names}))
    heading = f"{INTERVENTION_TITLES[EXACT]}; {RULE_TITLES['flip']}"
    return curve_figure(
        rows,
        view,
        heading,
        column="position",
        row=["model", "component"],
        labels=(LAYER, "ΔP"),
        height=0.7,
        share="all",
    )
