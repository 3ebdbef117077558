"""Rows of question files on this disk, as they were published."""

import codecs
import csv
import io
import json
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from anchorscope.files.frames import write_frame
from anchorscope.files.identity import sha256_of_file
from anchorscope.files.sealed_parquet import sealed

ROWS = 10_000  # held in memory at a time
EXAMPLE = '{"question": "who wrote Emma", "answers": ["Jane Austen"]}'
LINES, TABLE = (".jsonl", ".ndjson"), ".csv"


def read_lines(path: Path | str) -> pl.DataFrame:
    """Read a JSON Lines file unchanged, a byte order mark aside. The first line that cannot be read is named."""
    data = Path(path).read_bytes().removeprefix(codecs.BOM_UTF8)
    if not data.strip():
        raise ValueError(f"{path} is empty.")
    lines = dict(_lines(data))
    for number, line in lines.items():
        _check_line(line, f"Line {number} of {path}")
    try:
        return _table(list(lines.values()))
    except pl.exceptions.PolarsError as error:
        number, reason = _first_misfit(lines), str(error).splitlines()[0]
        raise ValueError(f"Line {number} of {path} does not fit into one table with those above: {reason}.") from error


def _table(lines: list[bytes]) -> pl.DataFrame:
    return pl.read_ndjson(b"\n".join(lines), infer_schema_length=None)


def _first_misfit(lines: dict[int, bytes]) -> int:
    """The number of the first line that cannot be read together with all above it."""

    def fails(count: int) -> bool:
        try:
            _table(list(lines.values())[:count])
        except pl.exceptions.PolarsError:
            return True
        return False

    return list(lines)[bisect_left(range(1, len(lines)), True, key=fails)]


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines that hold a row, with their numbers."""
    return ((number, line) for number, line in enumerate(data.split(b"\n"), start=1) if line.strip())


def _check_line(line: bytes, where: str) -> None:
    try:
        row = json.loads(line.decode())
        json.dumps(row, ensure_ascii=False).encode()  # half a surrogate pair cannot be
    except (ValueError, RecursionError) as error:  # decoding errors are among them
        raise ValueError(f"{where} cannot be read as JSON: {error}.") from error
    if not isinstance(row, dict):
        raise ValueError(f"{where} is not a JSON object; each line must be one, like {EXAMPLE}.")


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
        raise ValueError(f"The first line of {path} names the column {twice[0]!r} twice.")
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
    rows = _csv_rows(path) if path.suffix == TABLE else _lines(path.read_bytes())
    return f"Line {[line for line, _ in rows][number - 1]} of {path}"


def _open_parquet(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise ValueError(f"{path} cannot be read as Parquet: {reason}.") from error


def copy_rows(source: Path | str, target: Path | str, metadata: dict[str, str], sha256: str) -> None:
    """Write the rows and columns of a local Parquet, JSON Lines or CSV file as a sealed one.

    `sha256` is the hash that the file had when the run was planned, and that provenance repeats.
    """
    source = Path(source)
    _check_same(source, sha256)
    if source.suffix in (*LINES, TABLE):
        rows = read_csv(source) if source.suffix == TABLE else read_lines(source)
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
