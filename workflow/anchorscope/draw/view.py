"""What figures show: a run's tables, the models and datasets with their titles, and the rows of curves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle

import polars as pl

from anchorscope.draw.style import Style, read_style
from anchorscope.draw.titles import ANCHOR_TITLES, FEW
from anchorscope.extract.axes import Headline
from anchorscope.models.manifest import SALMON
from anchorscope.summarise.wording import mark_random, notes

Tables = Mapping[str, pl.DataFrame]  # those of a run, by name
PUBLISHED_PLACE = Headline("resid", "answer_last")
FIRM = (pl.col("n") >= FEW) & pl.col("better_than_chance")  # the rest is drawn faint


@dataclass(frozen=True)
class Quantity:
    """What a curve shows: its name on the axis, and the columns that hold it and its interval."""

    title: str
    value: str
    low: str
    high: str


QUANTITY_COLUMNS = {
    "delta_p": Quantity("ΔP", "delta_p", "low", "high"),
    "delta_logit": Quantity("Δlogit", "delta_logit", "logit_low", "logit_high"),
}
CONFIDENCE = QUANTITY_COLUMNS["delta_p"]


@dataclass(frozen=True)
class CurveFilter:
    """Which curves of the summary a figure shows."""

    rule: str = "flip"
    intervention: str = "exact_question"
    logits: str = "measured"

    def select(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of these curves; `sure` is false where they are drawn faint."""
        labels = "reference" if self.rule == "fixed" else "plotted"
        curves = rows.filter(rule=self.rule, labels=labels, intervention=self.intervention, logits=self.logits)
        return curves.with_columns(sure=FIRM)


@dataclass(frozen=True)
class View:
    """Models and datasets by name and title, in order; the probe that is read; a note; the style."""

    models: Mapping[str, str]
    datasets: Mapping[str, str]
    headline: Headline = PUBLISHED_PLACE
    note: str = ""
    style: Style = field(default_factory=read_style)

    def with_warnings(self, table: pl.DataFrame) -> "View":
        """Return this view with titles and a note that name random weights and bundled questions of a table."""
        weights = dict(table.select("model", "weights").unique().iter_rows())
        sentences = [*notes(table, self.models, self.datasets), self.note]
        return replace(self, models=mark_random(self.models, weights), note="\n".join(filter(None, sentences)))

    def select(self, table: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of these models, datasets and this headline, with titles in place of names."""
        place = {name: value for name, value in vars(self.headline).items() if name in table.columns}
        return self.with_titles(table.filter(**place))

    def with_titles(self, table: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of these models and datasets, with titles in place of names."""
        return title(title(table, "model", self.models), "dataset", self.datasets)

    def random_twins(self, table: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of models with random weights of the same shape, under the titles of these models."""
        twins = table.filter(pl.col("model").str.ends_with(SALMON))
        return self.select(twins.with_columns(pl.col("model").str.strip_suffix(SALMON)))

    @property
    def dataset_palette(self) -> dict[str, str]:
        """The colour of each dataset, by title."""
        return self.palette(list(self.datasets.values()))

    def palette(self, titles: Sequence[str]) -> dict[str, str]:
        """Return a colour for each title, over again if the style has fewer."""
        return dict(zip(titles, cycle(self.style.colours), strict=False))


def with_values(
    rows: pl.DataFrame, value: str, low: str | None = None, high: str | None = None, *, line: str = ""
) -> pl.DataFrame:
    """Copy a value and its interval to the columns that curves are drawn from, and name their line."""
    return rows.with_columns(line=pl.lit(line), value=value, low=low, high=high)


def group_rows(rows: pl.DataFrame, quantity: Quantity = CONFIDENCE) -> pl.DataFrame:
    """Return the curves of Question-Anchored and Answer-Anchored."""
    groups = rows.filter(pl.col("anchor").is_in(list(ANCHOR_TITLES)))
    curves = with_values(groups, quantity.value, quantity.low, quantity.high)
    return curves.with_columns(line=pl.col("anchor").replace_strict(ANCHOR_TITLES))


def title(rows: pl.DataFrame, column: str, titles: Mapping[str, str]) -> pl.DataFrame:
    """Keep the rows whose value has a title, and put the title in its place.

    The column's type lists all titles in order, so that a panel or a colour stays free for one without rows.
    """
    known = rows.filter(pl.col(column).is_in(list(titles)))
    categories = pl.Enum(list(titles.values()))
    return known.with_columns(pl.col(column).cast(pl.String).replace_strict(dict(titles), return_dtype=categories))


def measured(rows: pl.DataFrame, column: str, titles: Mapping[str, str]) -> dict[str, str]:
    """Return the titles of the values that occur in a column; all of them if it is empty."""
    values = set(rows[column])
    return {name: text for name, text in titles.items() if name in values or not values}
