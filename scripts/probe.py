"""Fit a probe for every layer, component and position, and measure delta P with it, out of fold.

Writes the delta table, one row per example, layer, component, position and intervention; the layers table with each
probe's AUC and calibration error; what the headline's probes say if a few labels are wrong; and the probes.
"""

import json
from typing import TYPE_CHECKING

import torch

from anchorscope.extract.axes import Grid, Headline
from anchorscope.files.logs import configure_logging
from anchorscope.files.memory import give_back_freed_blocks
from anchorscope.probe.job import ProbeSettings, probe_files

if TYPE_CHECKING:
    from snakemake.script import snakemake

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    torch.set_num_threads(snakemake.threads)
    give_back_freed_blocks()
    params, outputs = snakemake.params, snakemake.output
    settings = ProbeSettings(
        model=snakemake.wildcards.model,
        dataset=snakemake.wildcards.dataset,
        grid=Grid(*map(tuple, json.loads(params.grid))),
        knockouts=json.loads(params.knockouts),
        headline=Headline(**json.loads(params.headline)),
        folds=params.folds,
        repeats=params.repeats,
        seed=params.seed,
        on_card=snakemake.resources.gpu > 0 and torch.cuda.is_available(),
        code=params.code,
    )
    targets = [outputs.delta, outputs.layers, outputs.label_errors, outputs.probes]
    probe_files(snakemake.input, targets, settings)
