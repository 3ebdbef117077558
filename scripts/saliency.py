"""Measure how much of the probe's verdict flows by attention from the question's words to the answer.

Writes one row per example, layer and flow: from the exact question words, and from as many other ones. Where nothing
was probed, the table is empty.
"""

from anchorscope import job
from anchorscope.experiments.measure_saliency import SaliencySettings, saliency_file
from anchorscope.extract.axes import Headline

job.begin(snakemake.log[0])
saliency_file(
    snakemake.input.activations,
    chosen=snakemake.input.chosen,
    layers=snakemake.input.layers,
    probes=snakemake.input.probes,
    manifest=snakemake.input.manifest,
    target=snakemake.output[0],
    settings=SaliencySettings.of(
        snakemake.params,
        snakemake.input.manifest,
        threads=snakemake.threads,
        dataset=snakemake.wildcards.dataset,
        headline=Headline.from_json(snakemake.params.headline),
        folds=snakemake.params.folds,
        seed=snakemake.params.seed,
    ),
)
