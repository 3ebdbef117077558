"""Reads the results of a run."""

from pathlib import Path

import polars as pl

from anchorscope.files.frames import read_frame


def load_summary(path: Path | str = "results/summary.parquet") -> pl.DataFrame:
    """A run's summary: one row per model, dataset, component, position, intervention, rule, anchor and layer.

    A damaged file is an error. docs/formats.md describes the columns.
    """
    return read_frame(path)
