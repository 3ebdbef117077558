"""Tables that a user names: refused in one sentence where they cannot be what is wanted."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from anchorscope.files.faults import fault_of_file, shortened
from anchorscope.files.sealed_parquet import read_table


def read_named(path: Path | str, kind: str, such_as: str) -> pa.Table:
    """A whole table; `kind` and `such_as` say what should have been named."""
    fault = fault_of_file(path) or (None if Path(path).suffix == ".parquet" else "is not a Parquet file")
    if fault:
        raise ValueError(f"{shortened(path)} {fault}; name a {kind}, such as {such_as}.")
    return read_table(path)


def check_columns(table: pa.Table, needed: Sequence[str], otherwise: str) -> None:
    """Refuse a table without some of its columns: `otherwise` says what it is then."""
    missing = [name for name in needed if name not in table.column_names]
    if missing:
        raise ValueError(f"{otherwise}: it has no {', '.join(missing)}.")
