"""The part of a table that the claims, the strata and the report are about."""

from dataclasses import asdict

import polars as pl

from anchorscope.extract.axes import Headline


def at_headline(table: pl.DataFrame, headline: Headline) -> pl.DataFrame:
    """The rows that have the headline's component and position."""
    return table.filter(**asdict(headline))
