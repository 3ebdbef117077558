"""From the activations of an experiment to out-of-fold logits, by the probes of the main run; from files to a file."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl
import torch

from anchorscope.extract.axes import CLEAN, EXACT, REPLACING
from anchorscope.extract.store import ActivationReader, open_activations
from anchorscope.probe.anchor_rules import Probe
from anchorscope.probe.delta import States, in_chunks, intervention_table
from anchorscope.probe.examples import enough, examples_of
from anchorscope.probe.fitting import Fitting
from anchorscope.probe.kept import read_probes
from anchorscope.probe.logistic import FittedProbes
from anchorscope.probe.scores import Logits, each, join_layers, out_of_fold
from anchorscope.probe.written import write_derived

COLUMN_TYPES = {"donor": pl.String, "donor_popularity": pl.Int64, "replaced": pl.Int32, "kept": pl.Int32}


def score_files(
    activations: Sequence[Path | str],
    probes: Path | str,
    target: Path | str,
    *,
    experiment: str,
    dataset: str,
    fitting: Fitting,
) -> None:
    """Write the scores of an experiment's passes; nothing where nothing was probed."""
    about = {"experiment": experiment, "dataset": dataset, "folds": fitting.folds, "code": fitting.code}
    write_derived(
        [target],
        probes,
        lambda: [
            score_experiment(
                open_activations(activations, fitting.headline.grid(), [EXACT, experiment]),
                experiment,
                read_probes(probes),
                folds=fitting.folds,
                seed=fitting.seed,
                where=dataset,
                on_gpu=fitting.on_gpu,
            )
        ],
        {"stage": "score_experiment", **about},
    )


def score_experiment(
    reader: ActivationReader,
    experiment: str,
    probes: Sequence[dict[Probe, FittedProbes]],  # each [layers, folds]
    *,
    folds: int,
    seed: int,
    where: str,
    on_gpu: bool,
) -> pl.DataFrame:
    """A table like the delta table, for the passes of an experiment at the headline's component and position.

    `probes` are those of the main run, for each repeat.
    """
    examples = enough(examples_of(reader.keys, folds=folds, repeats=len(probes), seed=seed, where=where))
    interventions = [intervention for _, intervention in REPLACING[experiment]]
    done = {name: pl.DataFrame(reader.replaced(experiment, name), schema=COLUMN_TYPES) for name in interventions}
    examples = replace(examples, uncut={name: done[name]["replaced"].to_numpy() == 0 for name in interventions})
    passes = [CLEAN, *REPLACING[experiment]]
    first = [{probe: fitted for probe, fitted in some.items() if probe.prompt == CLEAN[0]} for some in probes]

    def score_on(device: torch.device, states: States, _: object, layers: range) -> list[Logits]:
        there = {intervention: vectors for (_, intervention), vectors in states.items()}
        own = each(first, lambda tensor: tensor[layers.start : layers.stop].to(device))
        folds = [torch.from_numpy(split.folds).to(device) for split in examples.splits]
        return [out_of_fold(of_repeat, there, some) for of_repeat, some in zip(own, folds, strict=True)]

    chunks = in_chunks(reader, passes, on_gpu, score_on)
    ((component, position),) = reader.grid.places()
    of_layers = {name: pl.concat([table] * reader.layers).to_dict() for name, table in done.items()}
    tables = [
        intervention_table(logits, examples, intervention=name, repeat=repeat, also={**of_layers[name]})
        for repeat, logits in enumerate(join_layers([part for *_, part in chunks]))
        for name in interventions
    ]
    return pl.concat(tables).with_columns(component=pl.lit(component), position=pl.lit(position))
