"""All methods on one dataset, cross-fitted: every example is scored by what never saw it."""

import polars as pl
import torch

from anchorscope.detect.many_layers import LayerProbes
from anchorscope.detect.methods import every_method
from anchorscope.detect.reading import Reading
from anchorscope.detect.trainings import Trainings, cross_fitting, own_fold

SCHEMA = {
    "method": pl.String,
    "id": pl.String,
    "cluster": pl.String,
    "hallucinated": pl.Boolean,
    "fold": pl.Int8,
    "score": pl.Float64,
    "p": pl.Float64,
}


def trainings_of(reading: Reading) -> Trainings:
    """All folds but one, for each fold."""
    return cross_fitting(torch.from_numpy(reading.folds))


def scores_table(reading: Reading, probes: LayerProbes, seed: int) -> pl.DataFrame:
    """One row per method and example. `probes` are the plain ones of all layers, fitted to `trainings_of`."""
    folds, tables = torch.from_numpy(reading.folds), []
    said = every_method(reading, probes, trainings_of(reading), together=reading.folds, seed=seed)
    for method, found in said.items():
        columns = {
            "method": [method] * len(folds),
            "id": reading.ids,
            "cluster": reading.clusters,
            "hallucinated": reading.hallucinated,
            "fold": reading.folds,
            "score": own_fold(found.scores, folds).numpy(),
            "p": own_fold(found.chances, folds).numpy(),
        }
        tables.append(pl.DataFrame(columns, schema=SCHEMA))
    return pl.concat(tables)
