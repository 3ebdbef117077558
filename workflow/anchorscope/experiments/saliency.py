"""Saliency: does its distribution over examples have two modes?

The dip test can only speak against one mode. So a dip is also compared with those of samples that do have two clear
modes: one that is smaller than nearly all of these speaks against two. `measure_saliency` has the values themselves.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import polars as pl

from anchorscope.experiments.names import DIP, MEAN, ONE_MODE, TWO_MODES
from anchorscope.experiments.record import Experiment
from anchorscope.summarise.claims import NO_BETTER_THAN_CHANCE, Claim, JudgedClaim, Part, weakest
from anchorscope.summarise.dip import LARGEST_SIMULATED, SIMULATIONS, dip_test, dips

SAMPLE = {"sample": pl.List(pl.Float32)}  # the column of values behind a mean
FLOWS = ("exact", "random")
CLEAR = 4.0  # standard deviations between two clear modes; two examples in three are in one, one in the other
LABELS = {"all": None, "right": False, "hallucinated": True}  # strata by the answer
FEWEST = 20  # examples without which nothing is said of a distribution
LEVEL = 5.0  # percent: a dip that is rarer than this with one mode speaks for two, and the other way round


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
            if len(sample) < FEWEST:
                continue
            names = {"condition": flow, "stratum": stratum, "layer": layer, "n": len(sample)}
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


def _modes(claim: JudgedClaim, table: pl.DataFrame, readable: bool) -> JudgedClaim:
    """Two modes of the flow from the question, and not of the flow from as many other words."""
    rows = table.filter(stratum="all").iter_rows(named=True)
    chances = {(row["condition"], row["measure"]): row["value"] for row in rows}
    if not readable or not chances:
        return replace(claim, because="there are fewer than 20 examples" if readable else NO_BETTER_THAN_CHANCE)
    exact, two = chances["exact", ONE_MODE], chances["exact", TWO_MODES]
    others = chances.get(("random", ONE_MODE), 100.0)
    verdict = "supported" if exact < LEVEL else "contradicted" if two < LEVEL else "undecided"
    parts = [
        Part("how often one mode dips as much, %", verdict, exact),
        Part("how often two clear modes dip as little, %", verdict, two),
        Part(
            "how often one mode dips as much as other words do, %",
            "supported" if others >= LEVEL else "undecided",
            others,
        ),
    ]
    return replace(claim, verdict=weakest(part.verdict for part in parts), effect=exact, parts=parts)


SALIENCY = Experiment(
    title="Saliency",
    shown="""Whether the flow from the exact question words to the answer has two modes over examples, beside the
flow from as many other words.""",
    claim=Claim("saliency", 11, "saliency has two modes", "the dip between two modes, against simulated samples"),
    rows=lambda given: saliency_rows(given.measured, given.reference, given.seed),
    columns=SAMPLE,
    judge=_modes,
)
