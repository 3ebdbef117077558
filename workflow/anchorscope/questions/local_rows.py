"""Rows of question files on this disk, as they were published.

Every value stays as it was written; a reader that guesses may turn 5 into "5" or null.
"""

import csv
import io
import json
import reprlib
from bisect import bisect_left
from codecs import BOM_UTF8
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from anchorscope.files.faults import reason_of
from anchorscope.files.identity import sha256_of_file
from anchorscope.files.sealed_parquet import sealed, write_table

ROWS = 10_000  # held in memory at a time
EXAMPLE_ROW = '{"question": "who wrote Emma", "answers": ["Jane Austen"]}'
LINES, TABLE = (".jsonl", ".ndjson"), ".csv"
MISFITS = (pa.ArrowException, OverflowError, TypeError, ValueError)


def read_lines(path: Path | str) -> pa.Table:
    """Read a JSON Lines file unchanged, a byte order mark aside. The first line that cannot be read is named."""
    rows = dict(json_rows(Path(path).read_bytes(), path, EXAMPLE_ROW))
    if not rows:
        raise ValueError(f"{path} is empty.")
    columns = {}
    for name in dict.fromkeys(name for row in rows.values() for name in row):
        values = [row.get(name) for row in rows.values()]
        try:
            columns[name] = pa.array(values)
        except MISFITS as error:
            line = list(rows)[_first_misfit(values)]
            raise ValueError(
                f"Line {line} of {path} does not fit in one table with those above: its {name!r} is of another kind "
                f"({reason_of(error)})."
            ) from error
    return pa.table(columns)


def _first_misfit(values: list) -> int:
    """The index of the first value that cannot stand in a column with all before it."""

    def fails(count: int) -> bool:
        try:
            pa.array(values[:count])
        except MISFITS:
            return True
        return False

    return bisect_left(range(1, len(values)), True, key=fails)


def _numbered_lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines that hold a row, with their numbers; a byte order mark aside."""
    lines = data.removeprefix(BOM_UTF8).split(b"\n")
    return ((number, line) for number, line in enumerate(lines, start=1) if line.strip())


def json_rows(data: bytes, where: Path | str, example: str) -> Iterator[tuple[int, dict]]:
    """What JSON Lines say, by the numbers of their lines. One that cannot be read, or is no object, is named.

    There are no half surrogate pairs, and no keys that stand twice or hold a NUL.
    """
    for number, line in _numbered_lines(data):
        try:
            row = json.loads(line.decode(), object_pairs_hook=_record)
            json.dumps(row, ensure_ascii=False).encode()  # half a surrogate pair cannot be
        except (ValueError, RecursionError) as error:  # decoding errors are among them
            raise ValueError(f"Line {number} of {where} cannot be read as JSON: {reason_of(error)}.") from error
        if not isinstance(row, dict):
            raise ValueError(f"Line {number} of {where} is not a JSON object; each line must be one, like {example}.")
        yield number, row


def _record(pairs: list[tuple[str, object]]) -> dict[str, object]:
    names = [name for name, _ in pairs]
    twice = [name for index, name in enumerate(names) if name in names[:index]]
    if twice:
        raise ValueError(f"the key {reprlib.repr(twice[0])} stands twice")
    if any("\0" in name for name in names):
        raise ValueError("a key holds a NUL, which no table can")
    return dict(pairs)


def read_csv(path: Path | str) -> pa.Table:
    """Read a CSV file, every cell as text and an empty one as null. The first line that cannot be read is named."""
    names = next(_cells(path), (0, []))[1]
    if not any(names):
        raise ValueError(f"{path} is empty, or its first line does not name the columns.")
    twice = [name for index, name in enumerate(names) if name in names[:index]]
    if twice:
        raise ValueError(f"The first line of {path} names the column {reprlib.repr(twice[0])} twice.")
    rows = []
    for number, row in _csv_rows(path):
        if len(row) != len(names):
            raise ValueError(f"Line {number} of {path} has {len(row)} cells, where its first line has {len(names)}.")
        rows.append([cell or None for cell in row])
    if not rows:
        raise ValueError(f"{path} has no rows.")
    return pa.table([pa.array(column, pa.large_string()) for column in zip(*rows, strict=True)], names)


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
    number = 1
    try:
        for row in reader:
            yield number, row
            number = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(f"Line {number} of {path} cannot be read as CSV: {error}.") from error


def name_row(path: Path | str, number: int) -> str:
    """Where a row of a file stands, as its user would look for it: by the line in a text file."""
    path = Path(path)
    if path.suffix not in (*LINES, TABLE) or not path.is_file():
        return f"Row {number} of {path}"
    rows = _csv_rows(path) if path.suffix == TABLE else _numbered_lines(path.read_bytes())
    return f"Line {[line for line, _ in rows][number - 1]} of {path}"


@contextmanager
def _reading_parquet(path: Path) -> Iterator[None]:
    """Turn what the library says about a broken file into one sentence."""
    try:
        yield
    except (pa.ArrowException, OSError, MemoryError, OverflowError) as error:
        raise ValueError(f"{path} cannot be read as Parquet: {reason_of(error)}.") from error


def _batches(file: pq.ParquetFile, path: Path) -> Iterator[pa.RecordBatch]:
    """The rows, some at a time; a text that is not UTF-8, or a list that reaches beyond its end, is refused."""
    with _reading_parquet(path):
        for batch in file.iter_batches(ROWS):
            batch.validate(full=True)
            yield batch


def copy_rows(source: Path | str, target: Path | str, metadata: dict[str, str], sha256: str) -> None:
    """Write the rows and columns of a local Parquet, JSON Lines or CSV file as a sealed one.

    `sha256` is the hash that the file had when the run was planned, and that provenance repeats.
    """
    source = Path(source)
    _check_same(source, sha256)
    if source.suffix in (*LINES, TABLE):
        rows = read_csv(source) if source.suffix == TABLE else read_lines(source)
        _check_same(source, sha256)
        try:
            write_table(target, rows, metadata)
        except pa.ArrowNotImplementedError as error:
            raise ValueError(f"{source} cannot be kept as a table: {reason_of(error)}.") from error
        return
    with _reading_parquet(source):
        file = pq.ParquetFile(source)
        names = file.schema_arrow.names
    if len(set(names)) < len(names) or "\0" in str(file.schema_arrow):
        raise ValueError(f"{source} has two columns of one name, or a NUL in a name; rename them.")
    with file, sealed(target, file.schema_arrow, metadata) as writer:
        for batch in _batches(file, source):
            writer.write_table(pa.Table.from_batches([batch]))
        _check_same(source, sha256)


def _check_same(source: Path, sha256: str) -> None:
    """Refuse a file that was edited after the run was planned: what is read must be what is recorded."""
    if sha256_of_file(source) != sha256:
        raise ValueError(f"{source} changed while the run was going on; start the run again.")
