"""Hartigan's dip test: is a sample from a distribution with one mode?

The dip is the least distance, over all distributions with one mode, between such a distribution function (convex up
to the mode, concave after it) and the sample's own. Its p-value is taken under the uniform distribution, the one with
one mode that makes large dips most likely, so that the test errs towards "one mode".

Written here because the Python package for it is under the GPL.
"""

from functools import cache

import numpy as np

LARGEST_SIMULATED = 400  # larger samples: the dip falls with the root of the sample's size
SIMULATIONS = 1000


def dip_test(sample: np.ndarray, seed: int) -> tuple[float, float]:
    """The dip of a sample, and the probability of one as large where there is one mode."""
    depth = dip(sample)
    size = min(len(sample), LARGEST_SIMULATED)
    scaled = depth * np.sqrt(len(sample) / size)
    return depth, float((1 + (simulated_dips(size, seed) >= scaled).sum()) / (1 + SIMULATIONS))


@cache
def simulated_dips(size: int, seed: int) -> np.ndarray:
    """Dips of uniform samples."""
    return dips(np.random.default_rng([seed, size]).random((SIMULATIONS, size)))


def dip(sample: np.ndarray) -> float:
    """The dip statistic of one sample."""
    return float(dips(np.asarray(sample)[None])[0])


def dips(samples: np.ndarray) -> np.ndarray:
    """The dip statistic of each row; at least 1 / (2 n), the distance of any continuous distribution function.

    The modal interval is narrowed step by step. Between its ends, the best function is no closer to the sample than
    half the distance between convex minorant and concave majorant. Outside, it is no closer than the minorant on the
    left, or the majorant on the right.
    """
    x = np.sort(np.asarray(samples, np.float64), axis=1)
    count, size = x.shape
    same = _from_here(np.diff(x, append=np.inf) > 0)  # the last rank in its row at which each point's value stands
    depth = np.ones(count)  # twice the dip, in examples
    going, low, high = np.arange(count), np.zeros(count, int), np.full(count, size - 1)
    while True:
        wide = x[going, low] < x[going, high]
        going, low, high = going[wide], low[wide], high[wide]
        if not len(going):
            return depth / (2 * size)
        now = x[going]
        below, above = (_bends(now, low=low, high=high, convex=convex) for convex in (True, False))
        left, right, distance = _farthest(now, same=same[going], below=below, above=above)
        farther = distance > depth[going]
        outside = np.maximum(
            _outside(now, bends=below, low=low, high=left, sign=1),
            _outside(now, bends=above, low=right, high=high, sign=-1),
        )
        depth[going] = np.where(farther, np.maximum(depth[going], outside), depth[going])
        narrowed = farther & ((left != low) | (right != high))
        going, low, high = going[narrowed], left[narrowed], right[narrowed]


def _bends(x: np.ndarray, low: np.ndarray, high: np.ndarray, convex: bool) -> np.ndarray:
    """Whether the convex minorant (or concave majorant) of a row's points (x, rank) bends at each, `low` to `high`.

    It does not bend at a point that is not below (above) the line between its neighbours. All such points are left out
    at once, until none remain.
    """
    rank = np.arange(x.shape[1])
    bends = (rank >= low[:, None]) & (rank <= high[:, None])
    row, column = np.nonzero(bends)
    value = x[row, column]
    end = (column == low[row]) | (column == high[row])
    while True:
        run, rise = np.diff(value), np.diff(column)
        first, second = rise[:-1] * run[1:], rise[1:] * run[:-1]
        kept = end.copy()
        kept[1:-1] |= (first < second) if convex else (first > second)
        if kept.all():
            return bends
        bends[row[~kept], column[~kept]] = False
        row, column, value, end = (part[kept] for part in (row, column, value, end))


def _up_to_here(marked: np.ndarray) -> np.ndarray:
    """The last marked rank at or before each, the first rank where there is none."""
    return np.maximum.accumulate(np.where(marked, np.arange(marked.shape[1]), 0), axis=1)


def _from_here(marked: np.ndarray) -> np.ndarray:
    """The first marked rank at or after each, the last rank where there is none."""
    rank = np.arange(marked.shape[1])
    return np.minimum.accumulate(np.where(marked, rank, rank[-1])[:, ::-1], axis=1)[:, ::-1]


def _farthest(
    x: np.ndarray, same: np.ndarray, below: np.ndarray, above: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where a row's majorant is farthest above its minorant: a bend of each with nothing between, and the distance.

    A step of the sample's distribution function is one example high: the minorant passes below its foot.
    """
    rows = np.arange(len(x))
    at_below = _heights(x, same=same, at=below, other=above, sign=1)
    at_above = _heights(x, same=same, at=above, other=below, sign=-1)
    left, right = at_below.argmax(1), at_above.argmax(1)
    of_below, of_above = at_below[rows, left], at_above[rows, right]
    first = of_below >= of_above
    left, right = (
        np.where(first, left, _up_to_here(below)[rows, right]),
        np.where(first, _from_here(above)[rows, left], right),
    )
    return left, right, np.maximum(of_below, of_above)


def _heights(x: np.ndarray, same: np.ndarray, at: np.ndarray, other: np.ndarray, sign: int) -> np.ndarray:
    """At each bend `at`, how far the hull that bends at `other` is from it, plus one; -inf elsewhere."""
    heights = np.full(x.shape, -np.inf)
    row, column = np.nonzero(at)
    start = _up_to_here(other)[row, same[row, column]]
    later = np.minimum(start + 1, x.shape[1] - 1)
    end = _from_here(other)[row, later]
    along = x[row, column] - x[row, start]
    with np.errstate(invalid="ignore", divide="ignore"):
        slope = (end - start) / (x[row, end] - x[row, start])
    line = np.where(along > 0, slope * along + start, start)
    heights[row, column] = sign * (line - column) + 1
    return heights


def _outside(x: np.ndarray, bends: np.ndarray, low: np.ndarray, high: np.ndarray, sign: int) -> np.ndarray:
    """How far each row's own function is from the hull that passes through `bends`, from `low` to `high`."""
    gaps = np.zeros(x.shape)
    rank = np.arange(x.shape[1])
    row, column = np.nonzero(~bends & (rank > low[:, None]) & (rank < high[:, None]))
    start, end = _up_to_here(bends)[row, column], _from_here(bends)[row, column]
    width = x[row, end] - x[row, start]
    with np.errstate(invalid="ignore", divide="ignore"):
        line = start + (end - start) * (x[row, column] - x[row, start]) / width
    gaps[row, column] = np.where(width > 0, sign * (column - line), 0.0)
    return gaps.max(1) + 1
