"""Reads the results of a run."""

from pathlib import Path

import polars as pl

from anchorscope.files.frames import read_frame
from anchorscope.files.plain import fault_of_file
from anchorscope.files.reasons import shortened

NEEDED = ("model", "dataset", "rule", "intervention", "logits", "anchor", "layer", "delta_p")


def load_summary(path: Path | str = "results/summary.parquet") -> pl.DataFrame:
    """A run's summary: one row per model, dataset, component, position, intervention, rule, anchor and layer.

    A damaged file, or one that is no summary, is an error. docs/formats.md describes the columns.
    """
    if fault := fault_of_file(path):
        raise ValueError(f"{shortened(path)} {fault}; name a summary, such as results/summary.parquet.")
    if Path(path).suffix != ".parquet":
        raise ValueError(f"{path} is not a Parquet file; name a summary, such as results/summary.parquet.")
    summary = read_frame(path)
    missing = [name for name in NEEDED if name not in summary.columns]
    if missing:
        raise ValueError(f"{path} is no summary: it has no {', '.join(missing)}; name results/summary.parquet.")
    return summary
