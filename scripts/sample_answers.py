"""Ask the model the questions of a shard's analysed examples again, several times each, at temperature 1.

Writes one row per analysed example, with the texts.
"""

from anchorscope import job
from anchorscope.detect.samples import SampleSettings, sample_file

job.begin(snakemake.log[0])
sample_file(
    snakemake.input.chosen,
    manifest=snakemake.input.manifest,
    target=snakemake.output[0],
    settings=SampleSettings.of(
        snakemake.params,
        snakemake.input.manifest,
        threads=snakemake.threads,
        samples=snakemake.params.samples,
    ),
)
