"""What the report says about labels that may be wrong."""

import polars as pl

from anchorscope.probe.label_errors import DRAWS, ERRORS, SHARE
from anchorscope.summarise.numbers import signed


def label_errors_sentence(rows: pl.DataFrame) -> str:
    """How far one model's AUC and honest gap would move, or nothing where that was not measured."""
    if rows.is_empty():
        return ""
    random, missed, believed = (
        f"{_range(some['auc_move'], 3)} and {_range(some['gap_move'], 1)} points"
        for some in (rows.filter(errors=errors) for errors in ERRORS)
    )
    return (
        f"If {100 * SHARE:.0f} % of the labels were wrong, at random, the AUC of the best layer and the honest gap "
        f"would move by {random}. If all of these were right answers called hallucinated, they would move by {missed}; "
        f"if all were hallucinated answers called right, by {believed}. Each is the range over datasets and {DRAWS} "
        "draws of the wrong labels."
    )


def _range(moves: pl.Series, decimals: int) -> str:
    """The lowest and the highest of some moves."""
    known = moves.drop_nulls().to_list()
    return f"{signed(min(known), decimals)} … {signed(max(known), decimals)}" if known else "–"
