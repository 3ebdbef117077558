"""Saliency: does its distribution over examples have two modes?

The dip test can only speak against one mode. So a dip is also compared with those of samples that do have two clear
modes: one that is smaller than nearly all of these speaks against two.
"""

from collections.abc import Iterator
from functools import cache

import numpy as np
import polars as pl

from anchorscope.experiments.names import MEAN
from anchorscope.summarise.dip import LARGEST_SIMULATED, SIMULATIONS, dip_test, dips

SAMPLE = {"sample": pl.List(pl.Float32)}  # a column that only saliency has
FLOWS = ("exact", "random")
DIP, ONE_MODE, TWO_MODES = (
    "dip",
    "one_mode",
    "two_modes",
)  # the dip, and the chance of it with one mode and with two, in %
CLEAR = 4.0  # standard deviations between two clear modes; two examples in three are in one, one in the other
LABELS = {"all": None, "right": False, "hallucinated": True}  # strata by the answer
FEWEST = 20  # examples without which nothing is said of a distribution


def saliency_rows(values: pl.DataFrame, layer: int, seed: int) -> Iterator[dict]:
    """Dip and mean of each kind of flow at the reference layer, for all examples and by label.

    The rows of a mean also have the `sample` that it is of.
    """
    there = values.filter(layer=layer).sort("flow", "id")
    if there.is_empty():
        raise ValueError(
            f"Saliency was not measured at the reference layer, {layer}; delete its table to measure it again."
        )
    for flow in FLOWS:
        own = there.filter(flow=flow)
        for stratum, wrong in LABELS.items():
            some = own if wrong is None else own.filter(hallucinated=wrong)
            sample = some["value"].cast(pl.Float64).to_numpy()
            names = {"condition": flow, "stratum": stratum, "layer": layer, "n": len(sample)}
            if len(sample) < FEWEST:
                continue
            depth, chance = dip_test(sample, seed)
            found = {DIP: depth, ONE_MODE: 100 * chance, TWO_MODES: 100 * chance_of_two(depth, len(sample), seed)}
            for measure, value in found.items():
                yield {**names, "measure": measure, "value": value}
            error = 1.96 * sample.std() / np.sqrt(len(sample))
            mean = sample.mean()
            yield {**names, "measure": MEAN, "value": mean, "low": mean - error, "high": mean + error, "sample": sample}


def chance_of_two(depth: float, count: int, seed: int) -> float:
    """The probability of a dip so small where there are two clear modes."""
    size = min(count, LARGEST_SIMULATED)
    # A real dip does not fall with the size of the sample: a smaller sample's is only less certain.
    return float((1 + (two_mode_dips(size, seed) <= depth).sum()) / (1 + SIMULATIONS))


@cache
def two_mode_dips(size: int, seed: int) -> np.ndarray:
    """Dips of samples with two clear modes."""
    generator = np.random.default_rng([seed, size, 2])
    lower = generator.random((SIMULATIONS, size)) < 2 / 3
    return dips(np.where(lower, 0.0, CLEAR) + generator.normal(size=lower.shape))
