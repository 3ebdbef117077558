"""The results of a run, read back."""

from pathlib import Path

import polars as pl

from anchorscope.files.frames import read_frame


def load_summary(path: Path | str = "results/summary.parquet") -> pl.DataFrame:
    """A run's summary, one row a model, dataset, component, position, intervention, rule, anchor and layer.

    Refuses a damaged file. docs/formats.md names the columns.
    """
    return read_frame(path)
