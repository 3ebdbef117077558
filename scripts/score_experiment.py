"""Score the passes of an experiment with the probes of the main run, out of fold.

Writes a table like the delta table, with what was put in the place of which tokens. Where the answers are too few to
probe, it is empty and says why in its metadata.
"""

from anchorscope import job
from anchorscope.experiments.score_replaced import score_files
from anchorscope.probe.fitting import begin_fitting

job.begin(snakemake.log[0])
score_files(
    snakemake.input.activations,
    probes=snakemake.input.probes,
    target=snakemake.output[0],
    experiment=snakemake.wildcards.experiment,
    dataset=snakemake.wildcards.dataset,
    fitting=begin_fitting(snakemake.params, snakemake.threads, gpus=snakemake.resources.gpu),
)
