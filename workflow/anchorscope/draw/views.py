"""What a figure shows, and what ends every figure: legend, heading and notes."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from anchorscope.draw.panels import Style, add_heading, add_legend, read_style, say_where_nothing_is
from anchorscope.extract.axes import Headline
from anchorscope.summarise.notes import mark_random, notes

ANCHOR_LETTERS = {"question": "Q", "answer": "A"}
ONE_MECHANISM = "if one mechanism"
PUBLISHED = Headline("resid", "answer_last")


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
        headline = {name: value for name, value in asdict(self.headline).items() if name in table.columns}
        return shown.filter(**headline)

    def titles(self, table: pl.DataFrame) -> list[str]:
        """The models' titles; those of models with random weights say so."""
        weights = dict(table.select("model", "weights").unique().iter_rows())
        return list(mark_random(self.models, weights).values())


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
