"""Data frames in sealed Parquet files."""

from pathlib import Path

import polars as pl

from anchorscope.files.sealed_parquet import read_table, sealed

ROWS = 100_000  # of a row group; only so many are held a second time while they are written
TYPES = pl.CompatLevel.oldest()  # that every reader of Parquet knows


def read_frame(path: Path | str, columns: list[str] | None = None) -> pl.DataFrame:
    return pl.from_arrow(read_table(path, columns))


def write_frame(target: Path | str, frame: pl.DataFrame, about: dict[str, str]) -> None:
    with sealed(target, frame.clear().to_arrow(compat_level=TYPES).schema, about) as writer:
        for part in frame.iter_slices(ROWS):
            writer.write_table(part.to_arrow(compat_level=TYPES))
