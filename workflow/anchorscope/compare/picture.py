"""The figure: a run's curves, the published ranges, and another run's curves."""

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anchorscope.compare.finished import FinishedRun
from anchorscope.compare.matching import Match
from anchorscope.draw.figures import ANCHOR_TITLES, INTERVENTION_TITLES, RULE_TITLES, Shown
from anchorscope.draw.panels import PUBLISHED_PLACE, Series, View, draw_curves, grid, looks, read_style
from anchorscope.extract.axes import EXACT

THIS, OTHER = "this run", "the other run"
ANCHOR_LINES = {"question": "-", "answer": "--"}
THIN = 0.8  # points: the other run's lines
NARROW = 60  # of a panel's width: the mark of a single layer has at least one such part on either side


def draw_comparison(
    run: FinishedRun, other: FinishedRun | None, matches: Iterable[Match], landmarks: Mapping
) -> Figure:
    """A column of panels for each model that is compared with anything, or else for all; a row for each dataset."""
    theirs = _under_our_names(run, other, matches) if other else run.summary.clear()
    compared = set(theirs["model"])
    marks = landmarks["models"] if run.headline == PUBLISHED_PLACE else {}
    compared |= {name for name, model in run.models.items() if model.hub in marks}
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
        of_model = run.models[cell["model"]]
        layout = run.datasets[cell["dataset"]].layout
        for mark in marks.get(of_model.hub, []):
            if mark.get("deepest", layout) == layout:
                _draw_mark(panel, mark, landmarks["tolerance"], of_model.layers)
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


def _draw_mark(panel: Axes, mark: Mapping, tolerance: float, layers: int) -> None:
    """A published range over its layers, and around it as far as a figure can be read; its outline is its curve's."""
    beside = max(0.4, layers / NARROW)
    across = [mark["layers"][0] - beside, mark["layers"][1] + beside]
    outline: dict[str, Any] = {"linewidth": 0.6, "linestyle": ANCHOR_LINES[mark["anchor"]], "edgecolor": "0.6"}
    low, high = mark["published"]
    wide, core = reversed(_mark_labels(tolerance))
    panel.fill_between(across, low - tolerance, high + tolerance, facecolor="0.92", **outline, zorder=0.2, label=wide)
    panel.fill_between(across, low, high, facecolor="0.75", **outline, zorder=0.3, label=core)
