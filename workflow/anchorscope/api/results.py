"""Reads the results of a run."""

from pathlib import Path
from typing import cast

import polars as pl

from anchorscope.files.named import check_columns, read_named

SUMMARY_COLUMNS = ("model", "dataset", "rule", "intervention", "logits", "anchor", "layer", "delta_p")


def load_summary(path: Path | str = "results/summary.parquet") -> pl.DataFrame:
    """A run's summary: one row per model, dataset, component, position, intervention, rule, anchor and layer.

    A damaged file, or one that is no summary, is an error. workflow/schemas/tables.yaml describes the columns.
    """
    summary = read_named(path, "summary", such_as="results/summary.parquet")
    check_columns(summary, SUMMARY_COLUMNS, f"{path} is no summary")
    read = cast(pl.DataFrame, pl.from_arrow(summary))
    if "replicate" in read["rule"]:
        raise ValueError(
            f"{path} was made by an older version, which called the honest rule `replicate`; run the workflow again."
        )
    return read
