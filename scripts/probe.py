"""Fit a probe for every layer, component and position, and measure delta P with it, out of fold.

Writes the delta table, one row per example, layer, component, position and intervention; the layers table with each
probe's AUC and calibration error; what the headline's probes say if a few labels are wrong; and the probes of each
component and position.
"""

import json

from anchorscope.extract.axes import Grid
from anchorscope.files.logs import configure_logging
from anchorscope.probe.fitting import begin_fitting
from anchorscope.probe.job import probe_answers

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    files, params, outputs = snakemake.input, snakemake.params, snakemake.output
    fitting = begin_fitting(
        snakemake.threads,
        cards=snakemake.resources.gpu,
        headline=params.headline,
        folds=params.folds,
        seed=params.seed,
        code=params.code,
    )
    probe_answers(
        files.activations,
        files.chosen,
        tables=[outputs.delta, outputs.layers, outputs.label_errors],
        probes=outputs[3:],
        dataset=snakemake.wildcards.dataset,
        grid=Grid(*map(tuple, json.loads(params.grid))),
        knockouts=json.loads(params.knockouts),
        repeats=params.repeats,
        fitting=fitting,
    )
