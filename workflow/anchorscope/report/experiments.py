"""The other experiments on the report: for each its figure, what it shows and its numbers."""

from collections.abc import Mapping, Sequence

import polars as pl
from markupsafe import Markup

from anchorscope.experiments.catalogue import EXPERIMENTS
from anchorscope.report.figures import Picture
from anchorscope.report.page import render
from anchorscope.report.tables import Titles, named
from anchorscope.summarise.wording import between, plain

DECIMALS = {"popularity": 2, "logprob": 2, "dip": 3, "mean": 4}  # one for all other measures


def experiment_section(
    name: str,
    table: pl.DataFrame,
    pictures: Sequence[Picture],
    models: Titles,
    datasets: Titles,
) -> Markup:
    """One experiment of a run; `table` has its estimates."""
    return render(
        "experiment.html",
        shown=EXPERIMENTS[name].shown,
        pictures=pictures,
        title=EXPERIMENTS[name].title,
        table=named(experiment_numbers(table.filter(pl.col("model").is_in(list(models)))), models, datasets),
    )


def experiment_numbers(table: pl.DataFrame) -> pl.DataFrame:
    """Means over layers, one row per model, dataset, measure, condition, stratum and rule; anchors side by side."""
    keys = ["model", "dataset", "measure", "condition", "stratum", "rule"]
    # Saliency has one layer, and no mean over layers.
    whole = table.filter(pl.col("layer").is_null()) if table["layer"].null_count() else table
    texts = whole.drop_nulls("value").with_columns(
        text=pl.struct("measure", "value", "low", "high").map_elements(_text, return_dtype=pl.String),
        anchor=pl.col("anchor").replace({"question": "Q", "answer": "A"}).fill_null("value"),
    )
    return texts.pivot("anchor", index=keys, values="text", maintain_order=True).select(
        pl.col(keys).exclude("rule") if texts["rule"].null_count() == len(texts) else pl.col(keys),
        pl.exclude(keys),
    )


def _text(row: Mapping) -> str:
    decimals = DECIMALS.get(row["measure"], 1)
    value = plain(row["value"], decimals)
    return value if row["low"] is None else f"{value} ({between(row['low'], row['high'], decimals)})"
