"""Data frames in sealed Parquet files."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import polars as pl

from anchorscope.files.plain import fault_of_file
from anchorscope.files.reasons import shortened
from anchorscope.files.sealed_parquet import read_table, sealed

ROWS = 100_000  # per row group; only these are held in memory twice while they are written
TYPES = pl.CompatLevel.oldest()  # types that every Parquet reader knows


def read_frame(path: Path | str, columns: list[str] | None = None) -> pl.DataFrame:
    return cast(pl.DataFrame, pl.from_arrow(read_table(path, columns)))


def read_named(path: Path | str, kind: str, such_as: str) -> pl.DataFrame:
    """A table that a user named. What cannot be one of that kind, or is damaged, is an error."""
    fault = fault_of_file(path) or (None if Path(path).suffix == ".parquet" else "is not a Parquet file")
    if fault:
        raise ValueError(f"{shortened(path)} {fault}; name a {kind}, such as {such_as}.")
    return read_frame(path)


def check_columns(frame: pl.DataFrame, needed: Sequence[str], otherwise: str) -> None:
    """Refuse a table without some of its columns: `otherwise` says what it is then."""
    missing = [name for name in needed if name not in frame.columns]
    if missing:
        raise ValueError(f"{otherwise}: it has no {', '.join(missing)}.")


def write_frame(target: Path | str, frame: pl.DataFrame, metadata: dict[str, str]) -> None:
    with sealed(target, frame.clear().to_arrow(compat_level=TYPES).schema, metadata) as writer:
        for part in frame.iter_slices(ROWS):
            writer.write_table(part.to_arrow(compat_level=TYPES))
