"""Probes on disk: a file for each component and position, one row per repeat, layer, probe and fold.

Whoever needs the probes behind the delta table reads them here, so that nothing is fitted twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import torch

from anchorscope.files.frames import check_columns, read_named
from anchorscope.probe.anchor_rules import FULL, PROBES, Probe
from anchorscope.probe.fitted import Fitted
from anchorscope.probe.logistic import FittedProbes
from anchorscope.probe.probed import enough, too_few
from anchorscope.probe.scores import Scores

KEYS = ("repeat", "layer", "fold")
NEEDED = ("component", "position", "probe", *KEYS, "strength", "inner_loss", "converged", "bias", "weight")


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


def probes_table(by_repeat: Sequence[Scores], component: str, position: str) -> pl.DataFrame:
    """The probes of all repeats, of one component and position."""
    names = {"component": pl.lit(component), "position": pl.lit(position)}
    return pl.concat(
        _rows(scores, fitted).with_columns(**names, repeat=pl.lit(repeat, pl.Int8), probe=pl.lit(probe.name))
        for repeat, scores in enumerate(by_repeat)
        for probe, fitted in scores.probes.items()
    ).select(NEEDED)


def _rows(scores: Scores, fitted: FittedProbes) -> pl.DataFrame:
    layers, folds, width = fitted.weight.shape
    return pl.DataFrame(
        {
            "layer": np.repeat(np.arange(layers, dtype=np.int16), folds),
            "fold": np.tile(np.arange(folds, dtype=np.int8), layers),
            "strength": scores.strengths.flatten().numpy(),
            "inner_loss": scores.inner_losses.flatten().numpy(),
            "converged": fitted.converged.flatten().numpy(),
            "bias": fitted.bias.flatten().numpy(),
            "weight": pl.Series(fitted.weight.flatten(0, 1).numpy(), dtype=pl.Array(pl.Float32, width)),
        }
    )


def load_probes(path: Path | str) -> KeptProbes:
    """The probes of one model on one dataset, from a file such as results/probes/{model}/{dataset}/{place}.parquet.

    A place is a component and a position, as in `resid.answer_last`. A damaged file, or one without probes, is an
    error. docs/formats.md describes the columns.
    """
    frame = read_named(path, "file of probes", such_as="results/probes/{model}/{dataset}/{place}.parquet")
    if frame.is_empty():
        enough(too_few(path))
    check_columns(frame, NEEDED, f"{path} is no file of probes")
    shape = [frame[name].n_unique() for name in KEYS]
    by_probe = {str(name): rows.sort(KEYS) for (name,), rows in frame.group_by("probe", maintain_order=True)}

    def arrays(name: str) -> dict[str, np.ndarray]:
        """By probe."""
        values = {probe: rows[name].to_numpy() for probe, rows in by_probe.items()}
        return {probe: some.reshape(*shape, *some.shape[1:]) for probe, some in values.items()}

    return KeptProbes(
        component=frame["component"][0],
        position=frame["position"][0],
        weight=arrays("weight"),
        bias=arrays("bias"),
        converged=arrays("converged"),
        strength=arrays("strength")[FULL.name],
        inner_loss=arrays("inner_loss")[FULL.name],
    )


def read_probes(path: Path | str) -> list[dict[Probe, FittedProbes]]:
    """The probes of each repeat, with the numbers that were fitted."""
    kept = load_probes(path)
    return [
        {probe: kept.fitted(probe, repeat).probes for probe in PROBES if probe.name in kept.weight}
        for repeat in range(len(kept.strength))
    ]
