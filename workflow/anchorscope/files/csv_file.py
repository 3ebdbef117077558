"""Tables for people, as CSV."""

from pathlib import Path

import polars as pl

from anchorscope.files.atomic import atomic


def write_csv(target: Path | str, table: pl.DataFrame) -> None:
    """Write a table; the file is whole or absent."""
    with atomic(target) as temporary:
        as_text(table).write_csv(temporary, float_precision=6)


def as_text(table: pl.DataFrame) -> pl.DataFrame:
    """A table that CSV can hold: lists become numbers with spaces between them.

    A text that a spreadsheet would take for a formula, such as a property of foreign questions, gets an apostrophe.
    """
    formula = pl.col(pl.String).str.contains(r"^[=+\-@\t\r]")
    safe = table.with_columns(pl.when(formula).then("'" + pl.col(pl.String)).otherwise(pl.col(pl.String)).name.keep())
    return safe.with_columns(pl.col(pl.List).list.eval(pl.element().cast(pl.String)).list.join(" "))
