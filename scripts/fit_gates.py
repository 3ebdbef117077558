"""Fit the gates of Pathway Reweighting: how likely each example is Question-Anchored, out of fold.

Writes one row per example. Where the answers are too few to probe, the table is empty and says why in its metadata.
"""

from anchorscope import job
from anchorscope.detect.gates import fit_gates
from anchorscope.probe.fitting import begin_fitting

job.begin(snakemake.log[0])
fit_gates(
    snakemake.input,
    dataset=snakemake.wildcards.dataset,
    target=snakemake.output[0],
    fitting=begin_fitting(snakemake.params, snakemake.threads, gpus=0),
)
