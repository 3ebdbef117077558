"""Score the passes of an experiment with the probes of the main run, out of fold.

Writes a table like the delta table, with what was put in the place of which tokens. Where the answers are too few to
probe, it is empty and says why in its metadata.
"""

import json
from typing import TYPE_CHECKING

import torch

from anchorscope.experiments.scores import ExperimentSettings, score_files
from anchorscope.extract.axes import Headline
from anchorscope.files.logs import configure_logging
from anchorscope.files.memory import give_back_freed_blocks

if TYPE_CHECKING:
    from snakemake.script import snakemake

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    torch.set_num_threads(snakemake.threads)
    give_back_freed_blocks()
    params, names, files = snakemake.params, snakemake.wildcards, snakemake.input
    settings = ExperimentSettings(
        experiment=names.experiment,
        dataset=names.dataset,
        headline=Headline(**json.loads(params.headline)),
        folds=params.folds,
        repeats=params.repeats,
        seed=params.seed,
        on_card=snakemake.resources.gpu > 0 and torch.cuda.is_available(),
        code=params.code,
    )
    score_files(files.activations, probes=files.probes, target=snakemake.output[0], settings=settings)
