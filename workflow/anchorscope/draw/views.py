"""What a figure shows, its grid of panels, and what ends every figure: legend, heading and notes."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anchorscope.draw.panels import (
    Share,
    Style,
    add_heading,
    add_legend,
    count_layers,
    label_rows,
    looks,
    name_panels,
    read_style,
    say_where_nothing_is,
    sheet,
)
from anchorscope.extract.axes import Headline
from anchorscope.summarise.wording import mark_random, notes

ANCHOR_LETTERS = {"question": "Q", "answer": "A"}
ONE_MECHANISM = "if one mechanism"
PUBLISHED = Headline("resid", "answer_last")
LAYER = "Layer"  # the x axis of most figures
Tables = dict[str, pl.DataFrame]  # those of a run, by name
Strip = tuple[str, dict[str, Any]]  # a row or column of panels: its title, and what its panels show


@dataclass(frozen=True)
class View:
    """What a figure shows: models and datasets by name and title, in order, and the probe that is read."""

    models: Mapping[str, str]
    datasets: Mapping[str, str]
    headline: Headline = PUBLISHED
    note: str = ""
    style: Style = field(default_factory=read_style)

    def of(self, table: pl.DataFrame) -> pl.DataFrame:
        """The part of a table that the figure shows; a table of the headline alone does not name it."""
        shown = table.filter(pl.col("model").is_in(list(self.models)), pl.col("dataset").is_in(list(self.datasets)))
        headline = {name: value for name, value in vars(self.headline).items() if name in table.columns}
        return shown.filter(**headline)

    def titles(self, table: pl.DataFrame) -> list[str]:
        """The models' titles; those of models with random weights say so."""
        weights = dict(table.select("model", "weights").unique().iter_rows())
        return list(mark_random(self.models, weights).values())

    def by_model(self, table: pl.DataFrame) -> list[Strip]:
        """A column of panels for each model."""
        return [(title, {"model": name}) for name, title in zip(self.models, self.titles(table), strict=True)]

    def by_dataset(self, title: str) -> list[Strip]:
        """A row of panels for each dataset, whose title stands in the braces."""
        return [(title.format(name), {"dataset": dataset}) for dataset, name in self.datasets.items()]

    def looks_of_datasets(self) -> dict[str, dict]:
        """How a dataset's only curve looks: as its Question-Anchored one where there are two."""
        every = looks(self.style, len(ANCHOR_LETTERS) * len(self.datasets))
        return dict(zip(self.datasets, every[:: len(ANCHOR_LETTERS)], strict=True))


@contextmanager
def grid(
    view: View,
    summary: pl.DataFrame,
    rows: Sequence[Strip],
    columns: Sequence[Strip] | None = None,
    *,
    heading: str,
    below: str = LAYER,
    level: float | None = 0,
    first_height: float = 1.0,
    row_height: float = 1.0,
    sharex: Share = "col",
    sharey: Share = True,
    **ending: Any,
) -> Iterator[tuple[Figure, list[tuple[Axes, dict[str, Any]]]]]:
    """A whole figure but for what is drawn in each panel, which comes with what it shows.

    Rows and columns (without any, the models) have titles, the x axes a label `below` the last row, and every panel a
    line at the `level` from which curves are seen. `ending` is as `finish` takes it.
    """
    columns = view.by_model(summary) if columns is None else columns
    shape: dict[str, Any] = {"first_height": first_height, "row_height": row_height, "sharex": sharex, "sharey": sharey}
    with sheet(view.style, len(columns), rows=len(rows), **shape) as (figure, panels):
        for line, (title, _) in zip(panels, rows, strict=True):
            label_rows(line[0], title, len(panels))
        name_panels(panels[0], [title for title, _ in columns])
        for panel in panels[-1]:
            panel.set_xlabel(below)
        if below == LAYER:
            count_layers(panels)
        shown = [{**across, **down} for _, across in rows for _, down in columns]
        yield figure, list(zip(panels.flat, shown, strict=True))
        for panel in panels.flat if level is not None else ():
            panel.axhline(level, color="0.6", linewidth=0.8, zorder=0)
        finish(figure, panels, view, summary=summary, heading=heading, **ending)


def finish(
    figure: Figure,
    panels: np.ndarray,
    view: View,
    *,
    summary: pl.DataFrame,
    heading: str,
    together: int = len(ANCHOR_LETTERS),
    last: str = ONE_MECHANISM,
    nothing: str = "not probed",
) -> None:
    """Add legend and heading, with what a reader must know before taking the figure for the published one.

    Panels without a curve say that there is `nothing`, and why.
    """
    say_where_nothing_is(panels, nothing)
    add_legend(figure, together, last)
    add_heading(figure, heading, *notes(summary, view.models, view.datasets), view.note)
