"""JSON rows as one table with every value as it was written; a reader that guesses may turn 5 into "5" or null."""

import json
import reprlib
from bisect import bisect_left
from pathlib import Path

import pyarrow as pa

from anchorscope.files.reasons import reason_of

MISFITS = (pa.ArrowException, OverflowError, TypeError, ValueError)


def read_row(line: bytes) -> object:
    """What a line of JSON says, without half surrogate pairs and without keys that stand twice or hold a NUL."""
    row = json.loads(line.decode(), object_pairs_hook=_record)
    json.dumps(row, ensure_ascii=False).encode()  # half a surrogate pair cannot be
    return row


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
