"""JSON rows as one table with every value as it was written; a reader that guesses may turn 5 into "5" or null."""

import json
import reprlib
from bisect import bisect_left
from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from anchorscope.files.reasons import reason_of

MISFITS = (pa.ArrowException, OverflowError, TypeError, ValueError)


def numbered_lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines that hold a row, with their numbers; a byte order mark aside."""
    lines = data.removeprefix(BOM_UTF8).split(b"\n")
    return ((number, line) for number, line in enumerate(lines, start=1) if line.strip())


def read_rows(data: bytes, where: Path | str, example: str) -> Iterator[tuple[int, dict]]:
    """What JSON Lines say, by the numbers of their lines. One that cannot be read, or is no object, is named.

    There are no half surrogate pairs, and no keys that stand twice or hold a NUL.
    """
    for number, line in numbered_lines(data):
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


def table_of(rows: dict[int, dict], path: Path | str) -> pa.Table:
    """One column for every key of some rows, which are given by the numbers of their lines."""
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
