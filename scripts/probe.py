"""Fit a probe for every layer, component and position, and measure delta P with it, out of fold.

Writes the delta table, one row per example, layer, component, position and intervention; the layers table with each
probe's AUC and calibration error; what the headline's probes say if a few labels are wrong; and the probes of each
component and position.
"""

import json

from anchorscope import job
from anchorscope.extract.axes import Grid
from anchorscope.probe.fitting import begin_fitting
from anchorscope.probe.job import probe_answers

job.begin(snakemake.log[0])
probe_answers(
    snakemake.input.activations,
    snakemake.input.chosen,
    tables=[snakemake.output.delta, snakemake.output.layers, snakemake.output.label_errors],
    probes=snakemake.output[3:],
    dataset=snakemake.wildcards.dataset,
    grid=Grid(*map(tuple, json.loads(snakemake.params.grid))),
    knockouts=json.loads(snakemake.params.knockouts),
    repeats=snakemake.params.repeats,
    fitting=begin_fitting(snakemake.params, snakemake.threads, gpus=snakemake.resources.gpu),
)
