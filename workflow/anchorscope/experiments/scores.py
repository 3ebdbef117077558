"""From the activations of an experiment to out-of-fold logits, by the probes of the main run.

The probes are fitted again, not read back: their weights are nowhere on disk, fifteen for each layer and repeat, and to
fit those of one prompt takes seconds. The same clean states give the same numbers, up to the tolerance of the solver.
"""

from dataclasses import replace

import numpy as np
import polars as pl
import torch

from anchorscope.extract.axes import REPLACING, Pass
from anchorscope.extract.store import REPLACED, ActivationReader
from anchorscope.probe.delta import States, in_chunks, intervention_table
from anchorscope.probe.examples import Examples, examples_of
from anchorscope.probe.scores import Logits, score_first

CLEAN: Pass = ("first", "clean")
DTYPES = {"donor": pl.String, "donor_popularity": pl.Int64, "replaced": pl.Int32, "kept": pl.Int32}


def score_experiment(
    reader: ActivationReader, experiment: str, *, folds: int, repeats: int, seed: int, where: str, on_card: bool
) -> pl.DataFrame:
    """A table like the delta table, for the passes of an experiment at the headline's component and position."""
    examples = examples_of(reader.keys, folds=folds, repeats=repeats, seed=seed, where=where)
    interventions = [intervention for _, intervention in REPLACING[experiment]]
    done = {name: pl.DataFrame(reader.replaced(experiment, name), schema=DTYPES) for name in interventions}
    examples = replace(examples, uncut={name: done[name]["replaced"].to_numpy() == 0 for name in interventions})
    passes = [CLEAN, *REPLACING[experiment]]
    chunks = in_chunks(reader, passes, on_card, lambda device, states, _: _score_on(device, states, examples))
    ((component, position),) = reader.grid.places()
    tables = []
    for repeat, of_repeat in enumerate(zip(*(part for *_, part in chunks), strict=True)):
        logits = {key: torch.cat([part[key] for part in of_repeat]) for key in of_repeat[0]}
        for intervention in interventions:
            also = {name: pl.concat([done[intervention][name]] * reader.layers) for name in REPLACED.names}
            tables.append(intervention_table(logits, examples, intervention=intervention, repeat=repeat, also=also))
    names = {"component": pl.lit(component), "position": pl.lit(position)}
    return pl.concat(tables).with_columns(**names)


def _score_on(device: torch.device, states: States, examples: Examples) -> list[Logits]:
    """The logits of some layers, one for each repeat."""
    there = {intervention: vectors.to(device) for (_, intervention), vectors in states.items()}

    def to_device(array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(device)

    hallucinated = to_device(examples.hallucinated)
    return [
        score_first(there, hallucinated, folds=to_device(split.folds), halves=to_device(split.halves))
        for split in examples.splits
    ]
