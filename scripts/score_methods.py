"""Score every example with every method of detection, out of fold.

Writes one row per method and example. Where the answers are too few to probe, the table is empty and says why in its
metadata.
"""

from anchorscope import job
from anchorscope.detect.scoring import score_methods
from anchorscope.probe.fitting import begin_fitting

job.begin(snakemake.log[0])
files = dict(snakemake.input.items())
score_methods(
    files,
    probes=files.pop("probes"),
    dataset=snakemake.wildcards.dataset,
    target=snakemake.output[0],
    answer_scores=snakemake.params.answer_scores,
    fitting=begin_fitting(snakemake.params, snakemake.threads, gpus=snakemake.resources.gpu),
)
