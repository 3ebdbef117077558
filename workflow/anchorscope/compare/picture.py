"""The figure: a run's curves, the published ranges, and another run's curves."""

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from anchorscope.compare.finished import FinishedRun
from anchorscope.compare.judging import no_landmarks
from anchorscope.compare.matching import Match
from anchorscope.draw.facets import LINE_DASHES, Entry, draw_curves, entry, facet, finish, style_context
from anchorscope.draw.style import AXIS_GREY, PALE
from anchorscope.draw.titles import ANCHOR_LETTERS, ANCHOR_TITLES, INTERVENTION_TITLES, LAYER, RULE_TITLES
from anchorscope.draw.view import CurveFilter, View, group_rows
from anchorscope.extract.axes import EXACT
from anchorscope.summarise.findings import asked_as_published

THIS, OTHER = "this run", "other run"
NARROW = 60  # of a panel's width: the mark of a single layer has at least one such panel_rows on either side
RANGES = {"published, as read off the figure": PALE, "published ± {tolerance:.0f} points": "0.9"}  # greys


def draw_comparison(
    run: FinishedRun, other: FinishedRun | None, matches: Iterable[Match], landmarks: Mapping
) -> Figure:
    """Draw a column of panels for each model that is compared, or else for all, and a row for each dataset."""
    flip = CurveFilter()
    ours = flip.select(run.curves(run.headline)).with_columns(run=pl.lit(THIS))
    parts = [ours]
    if other:
        theirs = flip.select(other.curves(run.headline)).with_columns(run=pl.lit(OTHER))
        parts += [_under_our_names(theirs, match) for match in matches if match.other]
    marked = [name for name in run.models if not no_landmarks(run, name, landmarks)]
    curves = pl.concat(parts, how="diagonal_relaxed")
    compared = {*marked, *curves.filter(run=OTHER)["model"]} or set(run.models)
    view = View(
        models={name: model.title for name, model in run.models.items() if name in compared},
        datasets={name: dataset.title for name, dataset in run.datasets.items()},
        headline=run.headline,
    ).with_warnings(run.summary)
    # Names beside titles, because landmarks are of a model's repository and a dataset's layout.
    rows = curves.with_columns(model_name="model", dataset_name="dataset")
    rows = group_rows(view.select(rows))
    palette = view.palette([THIS, OTHER])
    asked = set(asked_as_published(run.summary, run.layouts())["dataset"])

    def draw(panel: Axes, panel_rows: pl.DataFrame) -> None:
        model, dataset = panel_rows.select("model_name", "dataset_name").row(0)
        if model in marked and dataset in asked:
            _draw_ranges(panel, landmarks, run.models[model].hub, run.datasets[dataset].layout)
        draw_curves(panel, panel_rows, palette, hue="run")

    with style_context(view.style):
        figure = facet(rows, view, draw, row=["dataset"], labels=(LAYER, "ΔP"), height=0.7, share="all")
        entries: list[Entry] = [
            entry(f"{ANCHOR_LETTERS[anchor]}-Anchored, {name}", palette[name], dashes=LINE_DASHES[title])
            for name in (THIS, OTHER)[: len(parts)]
            for anchor, title in ANCHOR_TITLES.items()
        ]
        if marked and asked & set(rows["dataset_name"]):
            tolerance = landmarks["tolerance"]
            entries += [Patch(color=grey, label=name.format(tolerance=tolerance)) for name, grey in RANGES.items()]
        return finish(figure, view, f"{INTERVENTION_TITLES[EXACT]}; {RULE_TITLES['flip']}", entries)


def _under_our_names(rows: pl.DataFrame, match: Match) -> pl.DataFrame:
    """Return the other run's curves of a pair, with the names that this run has for model and dataset."""
    model, dataset = match.other or ("", "")
    panel_rows = rows.filter(model=model, dataset=dataset)
    return panel_rows.with_columns(model=pl.lit(match.model), dataset=pl.lit(match.dataset))


def _draw_ranges(panel: Axes, landmarks: Mapping, hub: str | None, layout: str) -> None:
    """Draw published ranges over their layers, and around them as far as a figure can be read."""
    marks = landmarks["models"][hub]
    beside = max(0.4, (1 + max(mark["layers"][1] for mark in marks)) / NARROW)
    for mark in marks:
        (first, last), (low, high) = mark["layers"], mark["published"]
        if mark.get("deepest", layout) == layout:
            dashes = LINE_DASHES[ANCHOR_TITLES[mark["anchor"]]]
            outline: dict[str, Any] = {"linewidth": 0.6, "linestyle": (0, dashes or None), "edgecolor": AXIS_GREY}
            for grey, reach, order in zip(RANGES.values(), (0, landmarks["tolerance"]), (0.3, 0.2), strict=True):
                ends = (first - beside, last + beside), low - reach, high + reach
                panel.fill_between(*ends, facecolor=grey, zorder=order, **outline)
