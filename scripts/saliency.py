"""Measure how much of the probe's verdict flows by attention from the question's words to the answer.

Writes one row per example, layer and flow: from the exact question words, and from as many other ones. Where nothing
was probed, the table is empty.
"""

import json

from anchorscope.experiments.saliency import SaliencySettings, saliency_file
from anchorscope.extract.axes import Headline
from anchorscope.files.logs import configure_logging

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    params, files = snakemake.params, snakemake.input
    settings = SaliencySettings.of(
        params,
        files.manifest,
        threads=snakemake.threads,
        dataset=snakemake.wildcards.dataset,
        headline=Headline(**json.loads(params.headline)),
        folds=params.folds,
        seed=params.seed,
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
