"""Ask the model the questions of a shard's analysed examples again, several times each, at temperature 1.

Writes one row per analysed example, with the texts.
"""

from anchorscope.detect.samples import SampleSettings, sample_file
from anchorscope.files.logs import configure_logging

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    params, files = snakemake.params, snakemake.input
    settings = SampleSettings.of(
        params,
        files.manifest,
        threads=snakemake.threads,
        samples=params.samples,
    )
    sample_file(files.chosen, manifest=files.manifest, target=snakemake.output[0], settings=settings)
