"""Tables of experiments that never were, in the shape that a run gathers them in."""

from itertools import product

import numpy as np
import polars as pl

from anchorscope.experiments.answer_only import INPUTS
from anchorscope.experiments.groups import RULES
from anchorscope.experiments.means import MEANS_SCHEMA
from anchorscope.experiments.names import (
    ACCURACY,
    DELTA_P,
    DIP,
    EQUAL_LOGIT,
    EVERYONE,
    FLIPS,
    GAIN,
    LOGIT,
    LOGPROB,
    MEAN,
    ONE_MODE,
    OTHER_PROMPT,
    READERS,
    SIGNED,
    SUBJECT,
    TWO_MODES,
    UNSURE,
)
from anchorscope.experiments.patching import PATCHES
from anchorscope.experiments.saliency import FLOWS, LABELS
from anchorscope.summarise.grouping import POPULARITY

LEVELS = {"question": 40.0, "answer": 10.0, "gap": 30.0, None: 70.0}
GAINS = {SIGNED: 25.0, LOGIT: -15.0}
REFERENCE = 2  # the layer with the best AUC


def level(measure: str, condition: str, anchor: str | None) -> float:
    """The value in the first layer; it falls by one with every layer, and the control has a tenth."""
    if measure == GAIN:
        return GAINS[condition]
    sign = -1 if measure == DELTA_P else 1
    return sign * LEVELS[anchor] * (0.1 if condition == "patch_random" else 1.0)


def make_experiments(layers: dict[str, int], datasets: list[str], weights: str = "trained") -> dict[str, pl.DataFrame]:
    """The gathered table of every experiment, for models with so many layers each."""
    anchors = ("question", "answer", "gap")
    strata = {ACCURACY: ("all", EQUAL_LOGIT, *POPULARITY)}
    units = {
        **{
            name: [(measure, condition, "all", anchor) for condition, anchor in product(passes, anchors)]
            for name, measure, passes in (("patching", FLIPS, PATCHES), ("answer_only", DELTA_P, INPUTS))
        },
        "boundary": [
            (measure, EVERYONE, stratum, anchor)
            for measure in (ACCURACY, UNSURE, SUBJECT, LOGPROB)
            for stratum in strata.get(measure, ("all", EQUAL_LOGIT))
            for anchor in (("gap",) if stratum == EQUAL_LOGIT else anchors)
        ],
        "awareness": [
            *(("auc", reader, "all", None) for reader in (*READERS, OTHER_PROMPT)),
            *((GAIN, reader, "all", None) for reader in GAINS),
        ],
    }
    made = {
        name: [
            row | {"model": model, "dataset": dataset}
            for model, dataset, rule, unit in product(layers, datasets, RULES, some)
            for row in _rows(*unit, rule=rule, layers=layers[model])
        ]
        for name, some in units.items()
    }
    made["saliency"] = [
        {"model": model, "dataset": dataset, **row}
        for model, dataset in product(layers, datasets)
        for row in _saliency()
    ]
    schema = {"model": pl.String, "dataset": pl.String, **MEANS_SCHEMA, "sample": pl.List(pl.Float32)}
    return {
        name: pl.DataFrame(rows, schema=schema)
        .drop("resampled", *([] if name == "saliency" else ["sample"]))
        .with_columns(weights=pl.lit(weights), source=pl.lit("hub"))
        for name, rows in made.items()
    }


def _rows(measure: str, condition: str, stratum: str, anchor: str | None, rule: str, layers: int) -> list[dict]:
    names = {"measure": measure, "condition": condition, "stratum": stratum, "rule": rule, "anchor": anchor}
    first = level(measure, condition, anchor)
    values = {layer: first - layer for layer in range(layers)} | {None: first}
    return [
        {**names, "layer": layer, "n": 50, "value": value, "low": value - 3, "high": value + 3}
        for layer, value in values.items()
    ]


def _saliency() -> list[dict]:
    sample = np.random.default_rng(0).gamma(2.0, size=200)
    found = {DIP: 0.02, ONE_MODE: 60.0, TWO_MODES: 0.1, MEAN: 2.0}
    return [
        {"measure": measure, "condition": flow, "stratum": label, "layer": REFERENCE, "n": 200, "value": value}
        | ({"sample": sample.tolist(), "low": 1.8, "high": 2.2} if measure == MEAN else {})
        for flow, label in product(FLOWS, LABELS)
        for measure, value in found.items()
    ]
