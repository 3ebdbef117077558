"""Probes on disk: a file for each component and position, one row per repeat, layer, probe and fold.

Whoever needs the probes behind the delta table reads them here, so that nothing is fitted twice.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from anchorscope.files.named import check_columns, read_named
from anchorscope.probe.anchor_rules import FULL, PROBES, Probe
from anchorscope.probe.examples import enough, too_few
from anchorscope.probe.logistic import FittedProbes
from anchorscope.probe.strengths import Fitted

PROBE_KEYS = ("repeat", "layer", "fold")
PROBE_COLUMNS = ("component", "position", "probe", *PROBE_KEYS, "strength", "inner_loss", "converged", "bias", "weight")


@dataclass(frozen=True)
class KeptProbes:
    """The probes of one component and position. Arrays are [repeats, layers, folds]."""

    component: str
    position: str
    weight: dict[str, np.ndarray]  # by probe: [repeats, layers, folds, width]
    bias: dict[str, np.ndarray]  # by probe
    converged: dict[str, np.ndarray]  # by probe: whether it reached its optimum
    strength: np.ndarray  # of the penalty, which all probes of a layer and fold share
    inner_loss: np.ndarray  # of the probe `full` with that strength, on inner folds

    def fitted(self, probe: Probe, repeat: int) -> Fitted:
        """One probe of one repeat, as it was fitted."""
        arrays = [some[probe.name][repeat] for some in (self.weight, self.bias, self.converged)]
        arrays += [self.strength[repeat], self.inner_loss[repeat]]
        weight, bias, converged, strength, loss = map(torch.tensor, arrays)
        return Fitted(FittedProbes(weight, bias, converged), strength, loss)


def load_probes(path: Path | str) -> KeptProbes:
    """The probes of one model on one dataset, from a file such as results/probes/{model}/{dataset}/{place}.parquet.

    A place is a component and a position, as in `resid.answer_last`. A damaged file, or one without probes, is an
    error. workflow/schemas/tables.yaml describes the columns.
    """
    table = read_named(path, "file of probes", such_as="results/probes/{model}/{dataset}/{place}.parquet")
    if not len(table):
        enough(too_few(path))
    check_columns(table, PROBE_COLUMNS, f"{path} is no file of probes")
    table = table.sort_by([(name, "ascending") for name in ("probe", *PROBE_KEYS)])
    names, shape = table["probe"].to_pylist(), [len(table[name].unique()) for name in PROBE_KEYS]
    parts = {name: table.slice(names.index(name), names.count(name)) for name in dict.fromkeys(names)}

    def numbers(column: str) -> dict[str, np.ndarray]:
        """By probe."""
        return {name: part[column].to_numpy().reshape(shape) for name, part in parts.items()}

    return KeptProbes(
        component=table["component"][0].as_py(),
        position=table["position"][0].as_py(),
        weight={
            name: part["weight"].combine_chunks().flatten().to_numpy().reshape(*shape, -1)
            for name, part in parts.items()
        },
        bias=numbers("bias"),
        converged=numbers("converged"),
        strength=numbers("strength")[FULL.name],
        inner_loss=numbers("inner_loss")[FULL.name],
    )


def read_probes(path: Path | str) -> list[dict[Probe, FittedProbes]]:
    """The probes of each repeat, with the numbers that were fitted."""
    kept = load_probes(path)
    return [
        {probe: kept.fitted(probe, repeat).probes for probe in PROBES if probe.name in kept.weight}
        for repeat in range(len(kept.strength))
    ]
