"""All methods on one dataset, cross-fitted: every example is scored by what never saw it; from files to a file."""

from pathlib import Path

import polars as pl
import torch
from torch import Tensor

from anchorscope.detect.methods import LayerProbes, every_method, probe_files, probe_layers
from anchorscope.detect.reading import Files, Reading, read_files
from anchorscope.probe.anchor_rules import FULL
from anchorscope.probe.fitting import Fitting
from anchorscope.probe.kept import load_probes
from anchorscope.probe.scores import each
from anchorscope.probe.strengths import Trainings, cross_fitting, own_fold
from anchorscope.probe.written import write_derived

SCHEMA = {
    "method": pl.String,
    "id": pl.String,
    "cluster": pl.String,
    "hallucinated": pl.Boolean,
    "fold": pl.Int8,
    "score": pl.Float64,
    "p": pl.Float64,
}


def score_methods(
    files: Files, probes: Path | str, dataset: str, target: Path | str, *, answer_scores: bool, fitting: Fitting
) -> None:
    """Write what every method says of a model's answers on a dataset; nothing where they were too few to probe.

    `probes` are those of the main run, whose first repeat has the same folds.
    """

    def scored() -> list[pl.DataFrame]:
        reader, reading = read_files(files, dataset, answer_scores, fitting)
        kept = load_probes(probes).fitted(FULL, repeat=0)

        def probe(clean: Tensor, layers: slice) -> list[LayerProbes]:
            device = clean.device
            plain = each(kept, lambda tensor: tensor[layers].to(device))
            return [probe_layers(clean, reading.labels.to(device), trainings_of(reading).to(device), plain)]

        (of_layers,) = probe_files(reader, probe, fitting.on_card)
        return [scores_table(reading, of_layers, fitting.seed)]

    made = {"stage": "score_methods", "dataset": dataset, "folds": fitting.folds, "code": fitting.code}
    write_derived([target], probes, scored, made)


def trainings_of(reading: Reading) -> Trainings:
    """All folds but one, for each fold."""
    return cross_fitting(torch.from_numpy(reading.folds))


def scores_table(reading: Reading, probes: LayerProbes, seed: int) -> pl.DataFrame:
    """One row per method and example. `probes` are the plain ones of all layers, fitted to `trainings_of`."""
    folds = torch.from_numpy(reading.folds)
    said = every_method(reading, probes, trainings_of(reading), together=reading.folds, seed=seed)
    everyone = {
        "id": reading.ids,
        "cluster": reading.clusters,
        "hallucinated": reading.hallucinated,
        "fold": reading.folds,
    }
    return pl.concat(
        pl.DataFrame(
            {
                "method": method,
                **everyone,
                "score": own_fold(found.scores, folds).numpy(),
                "p": own_fold(found.chances, folds).numpy(),
            },
            schema=SCHEMA,
        )
        for method, found in said.items()
    )
