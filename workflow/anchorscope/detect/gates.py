"""The gates of Pathway Reweighting, out of fold: how likely each example is Question-Anchored."""

import polars as pl
import torch
from torch import Tensor

from anchorscope.detect.fitted import fit_trainings
from anchorscope.detect.names import GATES
from anchorscope.detect.pathways import find_groups, read_gate
from anchorscope.detect.trainings import cross_fitting, own_fold
from anchorscope.extract.axes import Pass
from anchorscope.probe.examples import Examples

SCHEMA = {"id": pl.String, **dict.fromkeys(GATES, pl.Float32)}


def gates_table(states: dict[Pass, Tensor], examples: Examples) -> pl.DataFrame:
    """One row per example, a column for each gate; from states [examples, width] of the layer that is read."""
    labels, folds = torch.from_numpy(examples.hallucinated).float(), torch.from_numpy(examples.splits[0].folds)
    trainings, clean = cross_fitting(folds), states["first", "clean"][None]
    plain = fit_trainings(clean, labels, trainings)
    groups = find_groups(states, labels, trainings, plain.strengths[0])
    read = {gate: own_fold(read_gate(clean, groups.anchored[gate], trainings), folds) for gate in GATES}
    chances = {gate: some.numpy() for gate, some in read.items()}
    return pl.DataFrame({"id": examples.ids, **chances}, schema=SCHEMA)
