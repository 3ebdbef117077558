"""Rows of question files on this disk, as they were published."""

from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from anchorscope.files.frames import write_frame
from anchorscope.files.sealed_parquet import sealed

ROWS = 10_000  # held in memory at a time


def read_lines(path: Path | str) -> pl.DataFrame:
    """Read a JSON Lines file unchanged."""
    return pl.read_ndjson(path, infer_schema_length=None)


def copy_rows(source: Path | str, target: Path | str, metadata: dict[str, str]) -> None:
    """Write the rows and columns of a local Parquet or JSON Lines file as a sealed one."""
    source = Path(source)
    if source.suffix in (".jsonl", ".ndjson"):
        write_frame(target, read_lines(source), metadata)
        return
    with pq.ParquetFile(source) as file, sealed(target, file.schema_arrow, metadata) as writer:
        for batch in file.iter_batches(ROWS):
            writer.write_table(pa.Table.from_batches([batch]))
