"""Resampling of whole clusters: how far an estimate would move with other questions.

A resample is a row of weights that says how often each example is drawn. So every estimate that is a ratio of sums is
one matrix product for all resamples at once.
"""

import zlib

import numpy as np


def resample(clusters: list[str], draws: int, seed: int) -> np.ndarray:
    """Weights [draws, examples]: all clusters, drawn with replacement, each with all its examples."""
    names, cluster_of = np.unique(np.array(clusters), return_inverse=True)
    generator = np.random.default_rng([seed, zlib.crc32("\n".join(names).encode())])
    counts = generator.multinomial(len(names), np.full(len(names), 1 / len(names)), size=draws)
    return counts.astype(np.float64)[:, cluster_of]


def group_means(weights: np.ndarray, inside: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means of `values` [layers, examples] and shares of all examples, both [groups, draws, layers].

    The groups are the examples `inside` [layers, examples], the others, and all; NaN where a draw has none of them.
    """
    total = weights.sum(1)[:, None]
    counted = weights.astype(np.float32) @ inside.T.astype(np.float32)  # whole numbers, so nothing is rounded
    sizes = [counted.astype(np.float64), total - counted, np.broadcast_to(total, counted.shape)]
    sums = np.split(weights @ np.concatenate([inside * values, ~inside * values, values]).T, len(sizes), axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.stack([part / size for part, size in zip(sums, sizes, strict=True)]), np.stack(sizes) / total


def interval(resampled: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The central 95 % of resampled estimates [draws, ...], without draws that have no estimate (NaN).

    Not `np.nanquantile`: it rounds the last digit differently, and takes one column at a time where there are NaN.
    """
    ordered = np.sort(resampled, axis=0)  # NaN last
    count = np.isfinite(ordered).sum(0)

    def quantile(share: float) -> np.ndarray:
        rank = share * (count - 1).clip(min=0)
        below = np.floor(rank).astype(int)
        above = np.minimum(below + 1, (count - 1).clip(min=0))
        lower = np.take_along_axis(ordered, below[None], 0)[0]
        upper = np.take_along_axis(ordered, above[None], 0)[0]
        return lower + (rank - below) * (upper - lower)

    return quantile(0.025), quantile(0.975)
