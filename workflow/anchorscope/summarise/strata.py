"""The headline's estimates for parts of the examples."""

from collections.abc import Callable
from functools import partial

import numpy as np
import polars as pl

from anchorscope.summarise.bootstrap import Resamples
from anchorscope.summarise.curves import curve_rows, curves
from anchorscope.summarise.grouping import PlaceLogits, RoleResult, by_layer, group

RULES = ("flip", "replicate")
POPULARITY = ("unpopular", "middling", "popular")
DISTANCE = ("near", "farther", "farthest")
Members = Callable[[RoleResult], np.ndarray]  # the examples of a stratum, as one role of a rule sees them


def strata_table(delta: pl.DataFrame, place: PlaceLogits, resamples: Resamples) -> pl.DataFrame:
    """The curves of each stratum, one row per intervention, rule, anchor and layer; `delta` has the headline's rows.

    | stratum | |
    |---|---|
    | right, hallucinated | by the answer |
    | judged_right, judged_hallucinated | by the clean verdict of the probe that labels, at the layer |
    | unpopular, middling, popular | thirds by popularity, where the dataset has it |
    | near, farther, farthest | thirds by the distance of the knocked-out state from clean ones, at the layer |
    """
    tables = []
    for (intervention,), unit in delta.partition_by("intervention", as_dict=True, maintain_order=True).items():
        for rule in RULES:
            results = group(place, rule, intervention, "measured")
            for stratum, members in _strata(unit).items() if results else ():
                some = [result.among(members(result)) for result in results]
                if any(result.counted.any() for result in some):
                    names = {"intervention": intervention, "stratum": stratum, "rule": rule}
                    for anchor, curve in curves(some, resamples).items():
                        literals = {name: pl.lit(value) for name, value in {**names, "anchor": anchor}.items()}
                        tables.append(curve_rows(curve).with_columns(**literals))
    return pl.concat(tables)


def _strata(unit: pl.DataFrame) -> dict[str, Members]:
    """The strata of one intervention's rows, sorted by repeat, layer and id."""
    hallucinated, known, distance = (by_layer(unit, name) for name in ("hallucinated", "popularity", "distance"))
    found: dict[str, Members] = {
        "right": partial(_constant, ~hallucinated),
        "hallucinated": partial(_constant, hallucinated),
        "judged_right": lambda result: result.judged_right,
        "judged_hallucinated": lambda result: ~result.judged_right,
        **_thirds(distance, DISTANCE),
    }
    known = known.astype(np.float64)
    if np.isfinite(known[0, 0]).sum() >= len(POPULARITY):
        found |= _thirds(known, POPULARITY)
    return found


def _thirds(values: np.ndarray, names: tuple[str, ...]) -> dict[str, Members]:
    """Thirds by values [repeats, layers, examples] within each layer; unknown values are in none."""
    edges = np.nanquantile(values, [1 / 3, 2 / 3], axis=2)  # [edges, repeats, layers]
    third = np.where(np.isfinite(values), (values > edges[..., None]).sum(0), -1)
    return {name: partial(_constant, third == number) for number, name in enumerate(names)}


def _constant(members: np.ndarray, result: RoleResult) -> np.ndarray:
    return members
