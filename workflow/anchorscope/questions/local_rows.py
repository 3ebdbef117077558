"""Rows of question files on this disk, as they were published."""

import codecs
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from anchorscope.files.identity import sha256_of_file
from anchorscope.files.reasons import reason_of
from anchorscope.files.sealed_parquet import sealed, write_table
from anchorscope.questions.json_rows import read_row, table_of

ROWS = 10_000  # held in memory at a time
EXAMPLE = '{"question": "who wrote emma", "answer": ["Jane Austen"]}'


def read_lines(path: Path | str) -> pl.DataFrame:
    """Read a JSON Lines file unchanged, a byte order mark aside. The first line that cannot be read is named."""
    return cast(pl.DataFrame, pl.from_arrow(_lines_as_table(path)))


def _lines_as_table(path: Path | str) -> pa.Table:
    data = Path(path).read_bytes().removeprefix(codecs.BOM_UTF8)
    if not data.strip():
        raise ValueError(f"{path} is empty.")
    lines = {number: line for number, line in enumerate(data.split(b"\n"), start=1) if line.strip()}
    return table_of({number: _row(line, f"Line {number} of {path}") for number, line in lines.items()}, path)


def _row(line: bytes, where: str) -> dict:
    try:
        row = read_row(line)
    except (ValueError, RecursionError) as error:  # decoding errors are among them
        raise ValueError(f"{where} cannot be read as JSON: {error}.") from error
    if not isinstance(row, dict):
        raise ValueError(f"{where} is not a JSON object; each line must be one, like {EXAMPLE}.")
    return row


@contextmanager
def _reading_parquet(path: Path) -> Iterator[None]:
    """Turn what the library says about a broken file into one sentence."""
    try:
        yield
    except (pa.ArrowException, OSError, MemoryError, OverflowError) as error:
        raise ValueError(f"{path} cannot be read as Parquet: {reason_of(error)}.") from error


def _open_parquet(path: Path) -> pq.ParquetFile:
    with _reading_parquet(path):
        file = pq.ParquetFile(path)
        names = file.schema_arrow.names
    if len(set(names)) < len(names) or "\0" in str(file.schema_arrow):
        raise ValueError(f"{path} has two columns of one name, or a NUL in a name; rename them.")
    return file


def _batches(file: pq.ParquetFile, path: Path) -> Iterator[pa.RecordBatch]:
    """The rows, some at a time; a text that is not UTF-8, or a list that reaches beyond its end, is refused."""
    batches = file.iter_batches(ROWS)
    while True:
        with _reading_parquet(path):
            batch = next(batches, None)
            if batch is None:
                return
            batch.validate(full=True)
        yield batch


def copy_rows(source: Path | str, target: Path | str, metadata: dict[str, str], sha256: str) -> None:
    """Write the rows and columns of a local Parquet or JSON Lines file as a sealed one.

    `sha256` is the hash that the file had when the run was planned, and that provenance repeats.
    """
    source = Path(source)
    _check_same(source, sha256)
    if source.suffix in (".jsonl", ".ndjson"):
        rows = _lines_as_table(source)
        _check_same(source, sha256)
        try:
            write_table(target, rows, metadata)
        except pa.ArrowNotImplementedError as error:
            raise ValueError(f"{source} cannot be kept as a table: {reason_of(error)}.") from error
        return
    with _open_parquet(source) as file, sealed(target, file.schema_arrow, metadata) as writer:
        for batch in _batches(file, source):
            writer.write_table(pa.Table.from_batches([batch]))
        _check_same(source, sha256)


def _check_same(source: Path, sha256: str) -> None:
    """Refuse a file that was edited after the run was planned: what is read must be what is recorded."""
    if sha256_of_file(source) != sha256:
        raise ValueError(f"{source} changed while the run was going on; start the run again.")
