"""Train the probes of a model's detector on all examples of all its datasets.

Writes the detector, probes of every layer with what is needed to use them elsewhere, and a card that describes it.
Where no dataset has enough answers to probe, both say so.
"""

import json
from typing import TYPE_CHECKING

import torch

from anchorscope.detect.detector_job import DetectorSettings, train_detector
from anchorscope.detect.pooled import by_dataset
from anchorscope.extract.axes import Headline
from anchorscope.files.logs import configure_logging
from anchorscope.files.memory import give_back_freed_blocks

if TYPE_CHECKING:
    from snakemake.script import snakemake

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    torch.set_num_threads(snakemake.threads)
    give_back_freed_blocks()
    params, files, outputs = snakemake.params, snakemake.input, snakemake.output
    settings = DetectorSettings(
        headline=Headline(**json.loads(params.headline)),
        folds=params.folds,
        seed=params.seed,
        sources=json.loads(params.sources),
        on_card=snakemake.resources.gpu > 0 and torch.cuda.is_available(),
        code=params.code,
    )
    activations = by_dataset(files.activations, json.loads(params.datasets))
    train_detector(activations, files.manifest, target=outputs.detector, card=outputs.card, settings=settings)
