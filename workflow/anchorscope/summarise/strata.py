"""The headline's estimates for parts of the examples."""

import numpy as np
import polars as pl

from anchorscope.summarise.bootstrap import Resamples
from anchorscope.summarise.curves import curve_rows, curves
from anchorscope.summarise.grouping import PlaceLogits, RoleResult, by_layer, group

RULES = ("flip", "replicate")
POPULARITY = ("unpopular", "middling", "popular")
DISTANCE = ("near", "farther", "farthest")


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
            for stratum, members in _strata(unit, results).items() if results else ():
                some = [result.among(part) for result, part in zip(results, members, strict=True)]
                if any(result.counted.any() for result in some):
                    names = {"intervention": intervention, "stratum": stratum, "rule": rule}
                    for anchor, curve in curves(some, resamples).items():
                        literals = {name: pl.lit(value) for name, value in {**names, "anchor": anchor}.items()}
                        tables.append(curve_rows(curve).with_columns(**literals))
    return pl.concat(tables)


def _strata(unit: pl.DataFrame, results: list[RoleResult]) -> dict[str, list[np.ndarray]]:
    """Who is in each stratum, as each role sees it, from one intervention's rows, sorted by repeat, layer and id."""
    hallucinated, known, distance = (by_layer(unit, name) for name in ("hallucinated", "popularity", "distance"))
    known = known.astype(np.float64)
    popularity = _thirds(known, POPULARITY) if np.isfinite(known[0, 0]).sum() >= len(POPULARITY) else {}
    return {
        "right": [~hallucinated] * len(results),
        "hallucinated": [hallucinated] * len(results),
        "judged_right": [result.judged_right for result in results],
        "judged_hallucinated": [~result.judged_right for result in results],
        **{name: [third] * len(results) for name, third in (_thirds(distance, DISTANCE) | popularity).items()},
    }


def _thirds(values: np.ndarray, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Thirds by values [repeats, layers, examples] within each layer; unknown values are in none."""
    third = thirds(values, values)
    return {name: third == number for number, name in enumerate(names)}


def thirds(values: np.ndarray, among: np.ndarray) -> np.ndarray:
    """In which third of `among` [..., examples] each value lies, 0 to 2; -1 where that is not known."""
    if np.isfinite(among).sum() < 3:
        return np.full(values.shape, -1)
    edges = np.nanquantile(among, [1 / 3, 2 / 3], axis=-1)  # [edges, ...]
    return np.where(np.isfinite(values), (values > edges[..., None]).sum(0), -1)
