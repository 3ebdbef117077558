"""Score the passes of an experiment with the probes of the main run, out of fold.

Writes a table like the delta table, with what was put in the place of which tokens. Where the answers are too few to
probe, it is empty and says why in its metadata.
"""

import json
from typing import TYPE_CHECKING

import polars as pl
import torch

from anchorscope.experiments.scores import score_experiment
from anchorscope.extract.axes import EXACT, Headline
from anchorscope.extract.store import open_activations
from anchorscope.files.frames import write_frame
from anchorscope.files.logs import configure_logging
from anchorscope.files.memory import give_back_freed_blocks
from anchorscope.files.provenance import provenance
from anchorscope.files.sealed_parquet import made_from
from anchorscope.probe.kept import read_probes

if TYPE_CHECKING:
    from snakemake.script import snakemake

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    torch.set_num_threads(snakemake.threads)
    give_back_freed_blocks()
    params, names, files = snakemake.params, snakemake.wildcards, snakemake.input
    probed = made_from(files.probes)
    made = {"stage": "score_experiment", "experiment": names.experiment, "dataset": names.dataset}
    made |= {"folds": params.folds, "repeats": params.repeats, "code": params.code}
    made |= {key: probed[key] for key in ("model", "path", "not_probed") if key in probed}
    headline = Headline(**json.loads(params.headline))
    if "not_probed" in probed:
        scores = pl.DataFrame(schema={"id": pl.String})
    else:
        scores = score_experiment(
            open_activations(files.activations, headline.grid(), [EXACT, names.experiment]),
            names.experiment,
            read_probes(files.probes),
            folds=params.folds,
            seed=params.seed,
            where=f"{names.model} on {names.dataset}",
            on_card=snakemake.resources.gpu > 0 and torch.cuda.is_available(),
        )
    write_frame(snakemake.output[0], scores, provenance(**made))
