"""How far an estimate would move with other questions and other folds.

A resample is a row of weights that says how often each example is drawn, whole clusters at a time. So every estimate
that is a ratio of sums is one matrix product for all resamples at once. An estimate is the mean over repeats, each with
its own folds and halves. A resample adds to it a random combination of the repeats' distances from their mean: as much
as other folds, and probes that learnt from other questions, would change.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

CACHED = 2**17  # numbers that a core keeps at hand while it computes with them
SETS_AT_ONCE = 5  # whose sums are one matrix product


@dataclass(frozen=True)
class Resamples:
    """What each resample draws."""

    weights: np.ndarray  # [resamples, examples], how often; in single precision, far finer than resampling is
    # [resamples, repeats], factors of the repeats' distances from their mean: a repeat's own variance
    repeats: np.ndarray

    def over_repeats(self, by_repeat: np.ndarray, share_learnt: float) -> tuple[np.ndarray, np.ndarray]:
        """The mean of estimates [repeats, ..., layers], and how far each resample moves it: [..., resamples, layers].

        Repeats without an estimate are left out. Their probes learn from `share_learnt` of the questions, which are
        drawn without replacement. To first order, such draws vary by (1 - share_learnt) / share_learnt of what the
        whole set of questions would vary by, were it drawn anew. So the repeats tell of both: their mean over other
        draws from these questions, and what other questions would give.
        """
        mean = known_mean(by_repeat)
        apart = np.nan_to_num(by_repeat - mean)
        factors = self.repeats * np.sqrt(1 / self.repeats.shape[1] + share_learnt / (1 - share_learnt))
        return mean, factors @ np.moveaxis(apart, 0, -2)


def resample(clusters: list[str], repeats: int, bootstrap_draws: int, seed: int) -> Resamples:
    """All clusters, drawn with replacement, each with all its examples."""
    names, cluster_of = np.unique(np.array(clusters), return_inverse=True)
    generator = np.random.default_rng([seed, zlib.crc32("\n".join(names).encode())])
    counts = generator.multinomial(len(names), np.full(len(names), 1 / len(names)), size=bootstrap_draws)
    factors = generator.standard_normal((bootstrap_draws, repeats)) / np.sqrt(max(1, repeats - 1))
    return Resamples(counts.astype(np.float32)[:, cluster_of], factors)


def known_mean(values: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """The mean over the first axis, by weights if there are any, without NaN; NaN where there is nothing else."""
    known = np.isfinite(values)
    if weights is None and known.all():
        return values.mean(0)
    values = np.where(known, values, 0.0)
    if weights is not None:
        known, values = known * weights, values * weights
    total = known.sum(0)
    return np.divide(values.sum(0), total, where=total > 0, out=np.full(total.shape, np.nan))


def drawn_sums(weights: np.ndarray, sets: list[np.ndarray], values: np.ndarray) -> Iterator[list[np.ndarray]]:
    """How many of each set [layers, examples] a resample draws, then sums of values [values, layers, examples].

    By set, for how many and each value, [resamples, layers]. A set that is the same in all layers is counted once, for
    [resamples, 1]. A product of few rows mostly waits for the weights, so several sets have one.
    """
    for start in range(0, len(sets), SETS_AT_ONCE):
        some = sets[start : start + SETS_AT_ONCE]
        counted = [members[:1] if (members == members[0]).all() else members for members in some]
        rows = [part for count, members in zip(counted, some, strict=True) for part in (count, *(members * values))]
        sums = weights @ np.concatenate(rows, dtype=weights.dtype).T  # whole numbers, so counts, are exact
        parts = iter(np.split(sums, np.cumsum([len(part) for part in rows])[:-1], axis=1))
        for _ in some:
            yield list(islice(parts, 1 + len(values)))


def group_sums(weights: np.ndarray, labels: np.ndarray, counted: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Sums over both groups of each labelling: [labels, groups, 1 + values, resamples, layers].

    The groups are the examples inside, by labels [labels, layers or 1, examples], and the others, of those that are
    `counted` [layers, examples]. The smaller group of a layer is summed; the other is what it leaves of everyone.
    """
    fewer_inside = 2 * (labels & counted).sum(-1) <= counted.sum(-1)  # [labels, layers]
    smaller = counted & (labels == fewer_inside[:, :, None])
    everyone, *sums = drawn_sums(weights, [counted, *smaller], values)
    found = np.empty((len(labels), 2, 1 + len(values), len(weights), len(counted)), weights.dtype)
    for inside, outside, fewer, few in zip(found[:, 0], found[:, 1], fewer_inside, sums, strict=True):
        somebody = everyone[0] > few[0]  # in the larger group, or else nothing is left, whatever rounding leaves
        for number, (whole, part) in enumerate(zip(everyone, few, strict=True)):
            rest = np.where(somebody, whole - part, 0)
            inside[number], outside[number] = np.where(fewer, part, rest), np.where(fewer, rest, part)
    return found


def group_means(sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means, and shares of all examples that are counted, from sums [..., groups, 1 + values, resamples, layers].

    After both groups, all examples are a third. Means are [..., groups, values, resamples, layers], NaN where a
    resample has none of the group; shares [..., groups, resamples, layers].
    """
    sums = np.concatenate([sums, sums.sum(-4, keepdims=True)], axis=-4)
    sizes = sums[..., 0, :, :]
    with np.errstate(invalid="ignore", divide="ignore"):
        return sums[..., 1:, :, :] / sizes[..., None, :, :], sizes / sizes[..., 2:3, :, :]


def quantiles(resampled: np.ndarray, *shares: float) -> np.ndarray:
    """Quantiles [shares, ...] of resampled estimates [resamples, ...], without those that have no estimate (NaN).

    Not `np.nanquantile`: it rounds the last digit differently, and takes one column at a time where there are NaN.
    """
    ordered = np.sort(resampled, axis=0)  # NaN last
    last = (np.isfinite(ordered).sum(0) - 1).clip(min=0)
    rank = np.multiply.outer(shares, last)
    below = np.floor(rank).astype(int)
    lower, upper = (np.take_along_axis(ordered, places, 0) for places in (below, np.minimum(below + 1, last)))
    return lower + (rank - below) * (upper - lower)


def interval(resampled: np.ndarray) -> np.ndarray:
    """Both ends [2, ...] of the central 95 % of resampled estimates [resamples, ...]."""
    return quantiles(resampled, 0.025, 0.975)


def ends(resampled: np.ndarray) -> tuple[float, float]:
    """The interval of one number, from what every resample says: [resamples]."""
    low, high = interval(resampled).tolist()
    return low, high


def ends_as_columns(name: str, value: float, resampled: np.ndarray) -> dict[str, float]:
    """A number and both ends of its interval, from every resample's [resamples], as columns of a table."""
    low, high = ends(resampled)
    return {name: value, f"{name}_low": low, f"{name}_high": high}
