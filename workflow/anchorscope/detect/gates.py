"""The gates of Pathway Reweighting, out of fold: how likely each example is Question-Anchored; from files to a file."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import torch
from torch import Tensor

from anchorscope.detect.names import GATES
from anchorscope.detect.pathways import find_groups, read_gate
from anchorscope.detect.reading import read_states
from anchorscope.extract.axes import EXACT, Pass
from anchorscope.extract.store import open_activations
from anchorscope.files.logs import log
from anchorscope.files.sealed_parquet import made_from
from anchorscope.probe.examples import Examples, examples_of
from anchorscope.probe.fitting import Fitting
from anchorscope.probe.probed import TooFew
from anchorscope.probe.strengths import choose_strengths, cross_fitting, own_fold
from anchorscope.probe.written import write_probed

SCHEMA = {"id": pl.String, **dict.fromkeys(GATES, pl.Float32)}


def fit_gates(activations: Sequence[Path | str], dataset: str, target: Path | str, fitting: Fitting) -> None:
    """Write the gates of a model on a dataset. Where its answers are too few to probe, the table says so."""
    reader, model = open_activations(activations, fitting.headline.grid(), [EXACT]), made_from(activations[0])["model"]
    where = f"{model['name']} on {dataset}"
    examples = examples_of(reader.keys, folds=fitting.folds, repeats=1, seed=fitting.seed, where=where)
    made = {"stage": "fit_gates", "model": model, "dataset": dataset, "folds": fitting.folds, "code": fitting.code}
    if isinstance(examples, TooFew):
        log.warning("%s", examples.why)
        write_probed([target], examples, made)
    else:
        write_probed([target], [gates_table(read_states(reader, fitting.headline), examples)], made)


def gates_table(states: dict[Pass, Tensor], examples: Examples) -> pl.DataFrame:
    """One row per example, a column for each gate; from states [examples, width] of the layer that is read."""
    labels, folds = torch.from_numpy(examples.hallucinated).float(), torch.from_numpy(examples.splits[0].folds)
    trainings, clean = cross_fitting(folds), states["first", "clean"][None]
    # Of this one layer the strengths are chosen again: read from the probes, they would tie the model's passes that
    # wait for gates to every component and intervention that is probed.
    strengths = choose_strengths(clean, labels, trainings)
    groups = find_groups(states, labels, trainings, strengths[0])
    read = {gate: own_fold(read_gate(clean, groups.anchored[gate], trainings), folds) for gate in GATES}
    chances = {gate: some.numpy() for gate, some in read.items()}
    return pl.DataFrame({"id": examples.ids, **chances}, schema=SCHEMA)
