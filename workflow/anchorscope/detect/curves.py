"""Reliability: whether probabilities are what they say. Risk and coverage: what is left when doubtful answers go."""

import numpy as np
import polars as pl

from anchorscope.detect.scored import Scored
from anchorscope.probe.quality import CALIBRATION_BINS

COVERAGES = np.arange(1, 101) / 100


def reliability(scored: Scored) -> pl.DataFrame:
    """One row per method and bin of P that has examples: how many, their mean P, and how many were hallucinated."""
    which = np.minimum((scored.p * CALIBRATION_BINS).astype(int), CALIBRATION_BINS - 1)  # [methods, examples]
    long = pl.DataFrame(
        {
            "method": np.repeat(scored.methods, scored.p.shape[1]),
            "bin": which.ravel(),
            "p": scored.p.ravel(),
            "hallucinated": np.tile(scored.hallucinated, len(scored.methods)),
        }
    )
    bins = long.group_by("method", "bin", maintain_order=True).agg(
        n=pl.len(), p=pl.col("p").mean(), hallucinated_share=pl.col("hallucinated").mean()
    )
    order = {name: place for place, name in enumerate(scored.methods)}
    return bins.sort(pl.col("method").replace_strict(order, return_dtype=pl.Int32), "bin")


def calibration_errors(bins: pl.DataFrame) -> pl.DataFrame:
    """The expected calibration error of each method, from its `reliability`."""
    apart = (pl.col("p") - pl.col("hallucinated_share")).abs()
    return bins.group_by("method", maintain_order=True).agg(
        calibration_error=(pl.col("n") * apart).sum() / pl.col("n").sum()
    )


def risks(scores: np.ndarray, hallucinated: np.ndarray) -> np.ndarray:
    """The share of hallucinated answers among the 1, 2, … n that a method doubts least, [examples].

    Answers with equal scores come in no order. So each counts as the mean of them all, which is the expected value
    over their orders.
    """
    _, place, count = np.unique(scores, return_inverse=True, return_counts=True)
    wrong = np.bincount(place, weights=hallucinated)
    each = np.repeat(wrong / count, count)  # by rising score
    return each.cumsum() / np.arange(1, len(scores) + 1)


def kept(coverage: float | np.ndarray, examples: int) -> np.ndarray:
    """How many answers a coverage keeps: at least that share of them."""
    # A product such as 0.07 * 100 can lie a little above the whole number that is meant.
    return np.ceil(np.asarray(coverage) * examples - 1e-9).astype(int)


def coverage(scored: Scored) -> pl.DataFrame:
    """One row per method and percent of answers kept: the share of them that is hallucinated."""
    counts = kept(COVERAGES, len(scored.hallucinated))
    return pl.concat(
        pl.DataFrame(
            {"coverage": COVERAGES, "kept": counts, "risk": risks(scores, scored.hallucinated)[counts - 1]}
        ).select(pl.lit(method).alias("method"), pl.all())
        for method, scores in zip(scored.methods, scored.scores, strict=True)
    )
