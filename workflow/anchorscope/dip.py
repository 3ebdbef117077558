"""Hartigan's dip test: is a sample from a distribution with one mode?

The dip is the least distance, over all distributions with one mode, between such a distribution function (convex up
to the mode, concave after it) and the sample's own. Its p-value is taken under the uniform distribution, the one with
one mode that makes large dips most likely, so that the test errs towards "one mode".
"""

from functools import cache
from itertools import pairwise

import numpy as np

LARGEST_SIMULATED = 400  # from here on the dip falls with the root of the sample's size
SIMULATIONS = 1000


def dip_test(sample: np.ndarray, seed: int) -> tuple[float, float]:
    """The dip of a sample, and the probability of one as large where there is one mode."""
    found = dip(sample)
    size = min(len(sample), LARGEST_SIMULATED)
    scaled = found * np.sqrt(len(sample) / size)
    return found, float((1 + (simulated_dips(size, seed) >= scaled).sum()) / (1 + SIMULATIONS))


@cache
def simulated_dips(size: int, seed: int) -> np.ndarray:
    """Dips of uniform samples."""
    generator = np.random.default_rng([seed, size])
    return np.array([dip(generator.random(size)) for _ in range(SIMULATIONS)])


def dip(sample: np.ndarray) -> float:
    """The dip statistic; at least 1 / (2 n), the distance of any continuous distribution function.

    The modal interval is narrowed: between its ends the best function is no closer than half the distance of the
    sample's convex minorant from its concave majorant; outside it is no closer than the sample is to the one of the
    two that holds there.
    """
    x = np.sort(np.asarray(sample, np.float64))
    count = len(x)
    low, high, depth = 0, count - 1, 1.0  # depth is twice the dip, in examples
    while x[low] < x[high]:
        below = _hull(x, low, high, convex=True)
        above = _hull(x, low, high, convex=False)
        left, right, distance = _farthest(x, below, above)
        if distance <= depth:
            break
        depth = max(depth, _outside(x, below[below <= left], convex=True), _outside(x, above[above >= right], False))
        if (left, right) == (low, high):
            break
        low, high = left, right
    return depth / (2 * count)


def _hull(x: np.ndarray, low: int, high: int, convex: bool) -> np.ndarray:
    """Indices where the convex minorant (or concave majorant) of the points (x, rank) bends, from `low` to `high`."""
    kept: list[int] = []
    for index in range(low, high + 1):
        while len(kept) > 1:
            before, last = kept[-2], kept[-1]
            first = (last - before) * (x[index] - x[last])
            second = (index - last) * (x[last] - x[before])
            if (first < second) if convex else (first > second):
                break
            kept.pop()
        kept.append(index)
    return np.array(kept)


def _farthest(x: np.ndarray, below: np.ndarray, above: np.ndarray) -> tuple[int, int, float]:
    """Where the majorant is farthest above the minorant: a bend of each with nothing between, and the distance.

    A step of the sample's distribution function is one example high: the minorant passes below its foot.
    """
    at_below = np.interp(x[below], x[above], above) - below + 1
    at_above = above - np.interp(x[above], x[below], below) + 1
    if at_below.max() >= at_above.max():
        place = int(at_below.argmax())
        left = int(below[place])
        later = above[above >= left]
        return left, int(later[0]), float(at_below[place])
    place = int(at_above.argmax())
    right = int(above[place])
    earlier = below[below <= right]
    return int(earlier[-1]), right, float(at_above[place])


def _outside(x: np.ndarray, bends: np.ndarray, convex: bool) -> float:
    """How far the sample's own function is from a hull that passes through `bends`."""
    farthest = 0.0
    for start, end in pairwise(bends):
        inner = np.arange(start, end + 1)
        line = start + (end - start) * (x[inner] - x[start]) / (x[end] - x[start]) if x[end] > x[start] else inner
        gap = inner - line if convex else line - inner
        farthest = max(farthest, float(gap.max()) + 1)
    return farthest
