"""The headline's probes on disk: one row per repeat, layer, probe and fold.

Whoever needs the probes behind the delta table reads them here, so that all stages use the same ones.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import torch

from anchorscope.files.sealed_parquet import read_table
from anchorscope.probe.anchor_rules import PROBES, Probe
from anchorscope.probe.logistic import FittedProbes

Fitted = dict[Probe, FittedProbes]  # each [layers, folds]


def probes_table(by_repeat: Sequence[Fitted], component: str, position: str) -> pl.DataFrame:
    """The probes of all repeats, of one component and position."""
    return pl.concat(
        _rows(fitted, component=component, position=position, repeat=repeat, probe=probe.name)
        for repeat, of_repeat in enumerate(by_repeat)
        for probe, fitted in of_repeat.items()
    )


def _rows(fitted: FittedProbes, *, component: str, position: str, repeat: int, probe: str) -> pl.DataFrame:
    layers, folds, width = fitted.weight.shape
    count = layers * folds
    return pl.DataFrame(
        {
            "component": [component] * count,
            "position": [position] * count,
            "repeat": np.full(count, repeat, np.int8),
            "layer": np.repeat(np.arange(layers, dtype=np.int16), folds),
            "probe": [probe] * count,
            "fold": np.tile(np.arange(folds, dtype=np.int8), layers),
            "converged": fitted.converged.flatten().numpy(),
            "bias": fitted.bias.flatten().numpy(),
            "weight": pl.Series(fitted.weight.flatten(0, 1).numpy(), dtype=pl.Array(pl.Float32, width)),
        }
    )


def read_probes(path: Path | str) -> list[Fitted]:
    """The probes of each repeat, with the numbers that were fitted."""
    table = read_table(path)
    repeats, names = (table[name].to_numpy() for name in ("repeat", "probe"))
    return [
        {
            probe: _fitted(table.filter((repeats == repeat) & (names == probe.name)))
            for probe in PROBES
            if probe.name in names
        }
        for repeat in np.unique(repeats)
    ]


def _fitted(rows: pa.Table) -> FittedProbes:
    rows = rows.sort_by([("layer", "ascending"), ("fold", "ascending")])
    shape = tuple(len(rows[name].unique()) for name in ("layer", "fold"))
    weight = torch.tensor(rows["weight"].combine_chunks().flatten().to_numpy())
    bias, converged = (torch.tensor(rows[name].to_numpy()).unflatten(0, shape) for name in ("bias", "converged"))
    return FittedProbes(weight.reshape(*shape, -1), bias, converged)
