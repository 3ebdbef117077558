"""Question files as upstream has them."""

from pathlib import Path

import polars as pl


def read_raw(path: Path | str) -> pl.DataFrame:
    """Read a local Parquet or JSON Lines file as it is."""
    path = Path(path)
    if path.suffix in (".jsonl", ".ndjson"):
        return pl.read_ndjson(path, infer_schema_length=None)
    return pl.read_parquet(path)
