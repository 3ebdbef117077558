"""Measure how much of the probe's verdict flows by attention from the question's words to the answer.

Writes one row per example, layer and flow: from the exact question words, and from as many other ones. Where nothing
was probed, the table is empty.
"""

import json
from typing import TYPE_CHECKING

from anchorscope.answer.prompts import PromptSet
from anchorscope.experiments.saliency_job import SaliencySettings, saliency_file
from anchorscope.extract.axes import Headline
from anchorscope.files.logs import configure_logging
from anchorscope.models.manifest import Manifest

if TYPE_CHECKING:
    from snakemake.script import snakemake

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    params, files = snakemake.params, snakemake.input
    settings = SaliencySettings(
        dataset=snakemake.wildcards.dataset,
        headline=Headline(**json.loads(params.headline)),
        prompts=PromptSet.from_json(params.prompts, Manifest.read(files.manifest).prompt),
        dtype=params.dtype,
        threads=snakemake.threads,
        batch_tokens=params.batch_tokens,
        folds=params.folds,
        seed=params.seed,
        code=params.code,
    )
    saliency_file(
        files.activations,
        chosen=files.chosen,
        layers=files.layers,
        probes=files.probes,
        manifest=files.manifest,
        target=snakemake.output[0],
        settings=settings,
    )
