"""Data frames in sealed Parquet files."""

from pathlib import Path
from typing import cast

import polars as pl

from anchorscope.files.sealed_parquet import read_table, sealed

ROWS = 100_000  # per row group; only these are held in memory twice while they are written
TYPES = pl.CompatLevel.oldest()  # types that every Parquet reader knows


def read_frame(path: Path | str, columns: list[str] | None = None) -> pl.DataFrame:
    return cast(pl.DataFrame, pl.from_arrow(read_table(path, columns)))


def write_frame(target: Path | str, frame: pl.DataFrame, metadata: dict[str, str]) -> None:
    with sealed(target, frame.clear().to_arrow(compat_level=TYPES).schema, metadata) as writer:
        for part in frame.iter_slices(ROWS):
            writer.write_table(part.to_arrow(compat_level=TYPES))
