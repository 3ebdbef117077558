"""Rows of question files on this disk, as they were published."""

import csv
import io
import reprlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from anchorscope.files.identity import sha256_of_file
from anchorscope.files.reasons import reason_of
from anchorscope.files.sealed_parquet import sealed, write_table
from anchorscope.questions.json_rows import numbered_lines, read_rows, table_of

ROWS = 10_000  # held in memory at a time
EXAMPLE = '{"question": "who wrote Emma", "answers": ["Jane Austen"]}'
LINES, TABLE = (".jsonl", ".ndjson"), ".csv"


def read_lines(path: Path | str) -> pa.Table:
    """Read a JSON Lines file unchanged, a byte order mark aside. The first line that cannot be read is named."""
    rows = dict(read_rows(Path(path).read_bytes(), path, EXAMPLE))
    if not rows:
        raise ValueError(f"{path} is empty.")
    return table_of(rows, path)


def read_csv(path: Path | str) -> pl.DataFrame:
    """Read a CSV file, every cell as text and an empty one as null. The first line that cannot be read is named."""
    names, rows = _header(path), []
    for number, row in _csv_rows(path):
        if len(row) != len(names):
            raise ValueError(f"Line {number} of {path} has {len(row)} cells, where its first line has {len(names)}.")
        rows.append([cell or None for cell in row])
    if not rows:
        raise ValueError(f"{path} has no rows.")
    return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")


def _header(path: Path | str) -> list[str]:
    names = next(_cells(path), (0, []))[1]
    if not any(names):
        raise ValueError(f"{path} is empty, or its first line does not name the columns.")
    twice = [name for index, name in enumerate(names) if name in names[:index]]
    if twice:
        raise ValueError(f"The first line of {path} names the column {reprlib.repr(twice[0])} twice.")
    return names


def _csv_rows(path: Path | str) -> Iterator[tuple[int, list[str]]]:
    """The rows behind the header that hold anything, each with the number of its first line."""
    cells = _cells(path)
    next(cells, None)
    return ((number, row) for number, row in cells if row)


def _cells(path: Path | str) -> Iterator[tuple[int, list[str]]]:
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a UTF-8 text: {error}.") from error
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    while True:
        number = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise ValueError(f"Line {number} of {path} cannot be read as CSV: {error}.") from error
        yield number, row


def name_row(path: Path | str, number: int) -> str:
    """Where a row of a file stands, as its user would look for it: by the line in a text file."""
    path = Path(path)
    if path.suffix not in (*LINES, TABLE) or not path.is_file():
        return f"Row {number} of {path}"
    rows = _csv_rows(path) if path.suffix == TABLE else numbered_lines(path.read_bytes())
    return f"Line {[line for line, _ in rows][number - 1]} of {path}"


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
    """Write the rows and columns of a local Parquet, JSON Lines or CSV file as a sealed one.

    `sha256` is the hash that the file had when the run was planned, and that provenance repeats.
    """
    source = Path(source)
    _check_same(source, sha256)
    if source.suffix in (*LINES, TABLE):
        rows = read_csv(source).to_arrow() if source.suffix == TABLE else read_lines(source)
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
