"""Rows of question files on this disk, as they were published."""

import codecs
import json
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from anchorscope.files.frames import write_frame
from anchorscope.files.identity import sha256_of_file
from anchorscope.files.sealed_parquet import sealed

ROWS = 10_000  # held in memory at a time
EXAMPLE = '{"question": "who wrote emma", "answer": ["Jane Austen"]}'


def read_lines(path: Path | str) -> pl.DataFrame:
    """Read a JSON Lines file unchanged, a byte order mark aside. The first line that cannot be read is named."""
    data = Path(path).read_bytes().removeprefix(codecs.BOM_UTF8)
    _check_lines(data, path)
    return pl.read_ndjson(data, infer_schema_length=None)


def _check_lines(data: bytes, path: Path | str) -> None:
    for number, line in enumerate(data.split(b"\n"), start=1):
        try:
            row = json.loads(line.decode()) if line.strip() else {}
            json.dumps(row, ensure_ascii=False).encode()  # half a surrogate pair cannot be
        except (ValueError, RecursionError) as error:  # decoding errors are among them
            raise ValueError(f"Line {number} of {path} cannot be read as JSON: {error}.") from error
        if not isinstance(row, dict):
            raise ValueError(f"Line {number} of {path} is not a JSON object; each line must be one, like {EXAMPLE}.")
    if not data.strip():
        raise ValueError(f"{path} is empty.")


def _open_parquet(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise ValueError(f"{path} cannot be read as Parquet: {reason}.") from error


def copy_rows(source: Path | str, target: Path | str, metadata: dict[str, str], sha256: str) -> None:
    """Write the rows and columns of a local Parquet or JSON Lines file as a sealed one.

    `sha256` is the hash that the file had when the run was planned, and that provenance repeats.
    """
    source = Path(source)
    _check_same(source, sha256)
    if source.suffix in (".jsonl", ".ndjson"):
        rows = read_lines(source)
        _check_same(source, sha256)
        write_frame(target, rows, metadata)
        return
    with _open_parquet(source) as file, sealed(target, file.schema_arrow, metadata) as writer:
        for batch in file.iter_batches(ROWS):
            writer.write_table(pa.Table.from_batches([batch]))
        _check_same(source, sha256)


def _check_same(source: Path, sha256: str) -> None:
    """Refuse a file that was edited after the run was planned: what is read must be what is recorded."""
    if sha256_of_file(source) != sha256:
        raise ValueError(f"{source} changed while the run was going on; start the run again.")
