"""What a run found, in one sentence per model."""

from collections.abc import Sequence
from statistics import fmean

import polars as pl

from anchorscope.summarise.claims import JudgedClaim
from anchorscope.summarise.numbers import between, signed

NOT_PROBED = "not probed, because its answers are too few or too one-sided."
GAP_CLAIM = 1  # Question-Anchored lies below Answer-Anchored


def bottom_line(model: str, claims: Sequence[JudgedClaim], accounts: Sequence[dict], series: pl.DataFrame) -> str:
    """The gap as published, what is left of it, and whether there are two kinds of examples.

    `series` has the headline's rows, `accounts` is what `judge_lines` returns.
    """
    rows = [row for row in claims if (row.claim, row.model) == (GAP_CLAIM, model)]
    if not rows:
        return NOT_PROBED
    whole = None if any(row.dataset is None for row in rows) else rows[0].dataset  # with one dataset, it is the whole
    honest, recentred = (
        next(row for row in rows if (row.dataset, row.logits) == (whole, logits))
        for logits in ("measured", "recentred")
    )
    if honest.effect is None:
        return f"nothing can be said, because {honest.because}."
    judged = list(dict.fromkeys(row.dataset for row in rows if row.dataset is not None and row.effect is not None))
    averaged = f"layers and {len(judged)} datasets" if len(judged) > 1 else "layers"
    return (
        f"averaged over {averaged}, the gap between Question- and Answer-Anchored examples "
        f"{_published(series, model, judged)} as published, {_effect(honest)} when one prompt labels and another "
        f"measures, and {_effect(recentred)} once the push that the knockout gives to all examples is taken out; "
        f"{_kinds(model, accounts)}."
    )


def _published(series: pl.DataFrame, model: str, datasets: Sequence[str]) -> str:
    wanted = {"rule": "flip", "logits": "measured", "anchor": "gap", "intervention": "exact_question", "model": model}
    gaps = series.filter(pl.col("dataset").is_in(datasets), **wanted)["area"].drop_nulls().to_list()
    return f"is {signed(fmean(gaps))} points" if gaps else "has no value"


def _effect(claim: JudgedClaim) -> str:
    if claim.effect is None:
        return f"unknown ({claim.because})"
    return f"{signed(claim.effect)} (95 % interval {between(claim.low, claim.high)})"


def _kinds(model: str, accounts: Sequence[dict]) -> str:
    """How many datasets show two kinds of examples, and how many a difference by degrees."""
    own = [row["account"] for row in accounts if row["model"] == model]
    two, degrees = (own.count(account) for account in ("two_lines", "by_degrees"))
    of = f"of {len(own)} datasets" if len(own) > 1 else "of one dataset"
    return f"two kinds of examples are seen on {two or 'none'} {of}, a difference by degrees on {degrees or 'none'}"
