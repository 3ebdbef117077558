"""Train the probes of a model's detector on all examples of all its datasets.

Writes the detector, probes of every layer with what is needed to use them elsewhere, and a card that describes it.
Where no dataset has enough answers to probe, both say so.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from anchorscope.detect.detector_job import DetectorSettings, train_detector
from anchorscope.extract.axes import Headline
from anchorscope.files.logs import configure_logging
from anchorscope.files.memory import give_back_freed_blocks

if TYPE_CHECKING:
    from snakemake.script import snakemake


def by_dataset(files: list[str]) -> dict[str, list[str]]:
    """The files of each dataset, from .../{dataset}/{shard}/{file}."""
    found: dict[str, list[str]] = {}
    for file in files:
        found.setdefault(Path(file).parents[1].name, []).append(file)
    return found


if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    torch.set_num_threads(snakemake.threads)
    give_back_freed_blocks()
    params, files = snakemake.params, snakemake.input
    settings = DetectorSettings(
        headline=Headline(**json.loads(params.headline)),
        folds=params.folds,
        seed=params.seed,
        sources=json.loads(params.sources),
        on_card=snakemake.resources.gpu > 0 and torch.cuda.is_available(),
        code=params.code,
    )
    train_detector(
        by_dataset(files.activations),
        manifest=files.manifest,
        target=snakemake.output.detector,
        card=snakemake.output.card,
        settings=settings,
    )
