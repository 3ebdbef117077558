"""The figure: a run's curves, the published ranges, and another run's curves."""

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from anchorscope.compare.finished import FinishedRun, ModelRun
from anchorscope.compare.judging import no_landmarks
from anchorscope.compare.matching import Match
from anchorscope.draw.facets import LINES, Entry, draw_curves, entry, facet, finish, style_context
from anchorscope.draw.style import LINE, PALE
from anchorscope.draw.titles import ANCHOR_TITLES, INTERVENTION_TITLES, LAYER, RULE_TITLES
from anchorscope.draw.view import CurveFilter, View, groups_of
from anchorscope.extract.axes import EXACT
from anchorscope.summarise.findings import asked_as_published

THIS, OTHER = "this run", "the other run"
NARROW = 60  # of a panel's width: the mark of a single layer has at least one such part on either side
RANGES = {"published, as read off the figure": PALE, "published ± {tolerance:.0f} points": "0.9"}  # greys


def draw_comparison(
    run: FinishedRun, other: FinishedRun | None, matches: Iterable[Match], landmarks: Mapping
) -> Figure:
    """Draw a column of panels for each model that is compared, or else for all, and a row for each dataset."""
    flip = CurveFilter()
    ours = flip.select(run.curves(run.headline)).with_columns(run=pl.lit(THIS))
    theirs = _under_our_names(flip.select(other.curves(run.headline)), matches) if other else ours.clear()
    marked = [name for name in run.models if not no_landmarks(run, name, landmarks)]
    compared = {*marked, *theirs["model"]}
    view = View(
        models={name: model.title for name, model in run.models.items() if name in compared or not compared},
        datasets={name: dataset.title for name, dataset in run.datasets.items()},
        headline=run.headline,
    ).with_warnings(run.summary)
    both = pl.concat([ours, theirs.with_columns(run=pl.lit(OTHER))], how="diagonal_relaxed")
    names = both.select("model", "dataset").unique().rows()
    rows = groups_of(view.select(both))
    asked = set(asked_as_published(run.summary, run.layouts())["dataset"])
    marks = {
        (view.models[model], view.datasets[dataset]): (run.models[model], run.datasets[dataset].layout)
        for model, dataset in names
        if model in marked and dataset in asked
    }
    palette = view.palette([THIS, OTHER])

    def draw(panel: Axes, panel_rows: pl.DataFrame) -> None:
        pair = panel_rows.select("model", "dataset").row(0)
        if pair in marks:
            model, layout = marks[pair]
            _draw_ranges(panel, landmarks, model, layout)
        draw_curves(panel, panel_rows, palette, hue="run")

    with style_context(view.style):
        figure = facet(rows, view, draw, row=["dataset"], labels=(LAYER, "ΔP"), height=0.6, share="all")
        shown = [THIS] if theirs.is_empty() else [THIS, OTHER]
        entries: list[Entry] = [
            entry(f"{title}, {name}", palette[name], dashes=LINES[title])
            for name in shown
            for title in ANCHOR_TITLES.values()
        ]
        if marks:
            tolerance = landmarks["tolerance"]
            entries += [Patch(color=grey, label=name.format(tolerance=tolerance)) for name, grey in RANGES.items()]
        return finish(figure, view, f"{INTERVENTION_TITLES[EXACT]}; {RULE_TITLES['flip']}", entries)


def _under_our_names(rows: pl.DataFrame, matches: Iterable[Match]) -> pl.DataFrame:
    """Return the other run's curves that can be compared, with the names that this run has for models and datasets."""
    parts = [rows.clear()]
    for match in matches:
        if match.other:
            part = rows.filter(model=match.other[0], dataset=match.other[1])
            parts.append(part.with_columns(model=pl.lit(match.model), dataset=pl.lit(match.dataset)))
    return pl.concat(parts)


def _draw_ranges(panel: Axes, landmarks: Mapping, model: ModelRun, layout: str) -> None:
    """Draw published ranges over their layers, and around them as far as a figure can be read."""
    beside = max(0.4, model.layers / NARROW)
    for mark in landmarks["models"][model.hub]:
        if mark.get("deepest", layout) != layout:
            continue
        first, last = mark["layers"]
        low, high = mark["published"]
        dashes = LINES[ANCHOR_TITLES[mark["anchor"]]]
        outline: dict[str, Any] = {"linewidth": 0.6, "linestyle": (0, dashes) if dashes else "-", "edgecolor": LINE}
        for order, (grey, reach) in enumerate(zip(RANGES.values(), (0, landmarks["tolerance"]), strict=True)):
            ends = (first - beside, last + beside), low - reach, high + reach
            panel.fill_between(*ends, facecolor=grey, zorder=0.3 - 0.1 * order, **outline)
