"""The figure: a run's curves, the published ranges, and another run's curves."""

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anchorscope.compare.finished import FinishedRun, ModelRun
from anchorscope.compare.judging import no_landmarks
from anchorscope.compare.matching import Match
from anchorscope.draw.figures import ANCHOR_TITLES, INTERVENTION_TITLES, RULE_TITLES, Shown
from anchorscope.draw.panels import Series, View, draw_curves, grid, looks, read_style
from anchorscope.extract.axes import EXACT
from anchorscope.summarise.findings import asked_as_published

THIS, OTHER = "this run", "the other run"
ANCHOR_LINES = {"question": "-", "answer": "--"}
THIN = 0.8  # points: the other run's lines
NARROW = 60  # of a panel's width: the mark of a single layer has at least one such part on either side


def draw_comparison(
    run: FinishedRun, other: FinishedRun | None, matches: Iterable[Match], landmarks: Mapping
) -> Figure:
    """A column of panels for each model that is compared with anything, or else for all; a row for each dataset."""
    theirs = _under_our_names(run, other, matches) if other else run.summary.clear()
    marked = [name for name in run.models if not no_landmarks(run, name, landmarks)]
    compared = {*marked, *theirs["model"]}
    asked = set(asked_as_published(run.summary, run.layouts())["dataset"])
    shown = [name for name in run.models if name in compared] or list(run.models)
    view = View(
        models={name: run.models[name].title for name in shown},
        datasets={name: dataset.title for name, dataset in run.datasets.items()},
        headline=run.headline,
        style=read_style(),
    )
    mine = Shown().of(run.curves(run.headline))
    ours, others = looks(view.style, 2)

    def draw(panel: Axes, cell: Mapping[str, Any]) -> None:
        if cell["model"] in marked and cell["dataset"] in asked:
            _draw_marks(panel, landmarks, run.models[cell["model"]], run.datasets[cell["dataset"]].layout)
        if not theirs.is_empty():
            draw_curves(panel, theirs.filter(**cell), _both_anchors(OTHER, {**others, "linewidth": THIN}), "delta_p")
        draw_curves(panel, mine.filter(**cell), _both_anchors(THIS, ours), "delta_p")

    return grid(
        view,
        run.summary,
        view.by_dataset("{}"),
        draw,
        beside="ΔP",
        heading=f"{INTERVENTION_TITLES[EXACT]}; {RULE_TITLES['flip']}",
        first_height=0.8,
        row_height=0.5,
        sharey="scale",
        key=[
            *(label for who in (THIS, OTHER) for _, _, label in _both_anchors(who, {})),
            *_mark_labels(landmarks["tolerance"]),
        ],
    )


def _under_our_names(run: FinishedRun, other: FinishedRun, matches: Iterable[Match]) -> pl.DataFrame:
    """The other run's curves that can be compared, with the names that this run has for models and datasets."""
    rows = Shown().of(other.curves(run.headline))
    return pl.concat(
        [
            rows.clear(),
            *(
                rows.filter(model=match.other[0], dataset=match.other[1]).with_columns(
                    model=pl.lit(match.model), dataset=pl.lit(match.dataset)
                )
                for match in matches
                if match.other
            ),
        ]
    )


def _both_anchors(who: str, look: dict) -> list[Series]:
    """Two curves of one run: Question-Anchored solid, Answer-Anchored dashed."""
    return [
        ({"anchor": anchor}, {**look, "linestyle": ANCHOR_LINES[anchor]}, f"{title}, {who}")
        for anchor, title in ANCHOR_TITLES.items()
    ]


def _mark_labels(tolerance: float) -> tuple[str, str]:
    return "published, as read off the figure", f"published ± {tolerance:.0f} points"


def _draw_marks(panel: Axes, landmarks: Mapping, model: ModelRun, layout: str) -> None:
    """Published ranges over their layers, and around them as far as a figure can be read; outlined as their curves."""
    tolerance, beside = landmarks["tolerance"], max(0.4, model.layers / NARROW)
    core, wide = _mark_labels(tolerance)
    for mark in landmarks["models"][model.hub]:
        if mark.get("deepest", layout) == layout:
            first, last = mark["layers"]
            low, high = mark["published"]
            outline: dict[str, Any] = {"linewidth": 0.6, "linestyle": ANCHOR_LINES[mark["anchor"]], "edgecolor": "0.6"}
            for label, reach, shade, order in ((wide, tolerance, "0.92", 0.2), (core, 0, "0.75", 0.3)):
                ends = (first - beside, last + beside), low - reach, high + reach
                panel.fill_between(*ends, facecolor=shade, zorder=order, label=label, **outline)
