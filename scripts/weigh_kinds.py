"""Weigh four accounts of what the knockout does to one model's examples: two kinds of them, degrees, both or neither.

Writes how well each account predicts held-out examples (accounts), and what tells the kinds apart where there are two
(told_apart). Both are empty where nothing was probed.
"""

import polars as pl
import torch

from anchorscope import job
from anchorscope.extract.axes import Headline
from anchorscope.files.frames import read_frame
from anchorscope.probe.written import write_derived
from anchorscope.summarise.weigh_kinds import FORMS_NEEDED, weigh_kinds

job.begin(snakemake.log[0])
torch.set_num_threads(1)  # of each process
settings = {"bootstrap_draws": snakemake.params.bootstrap_draws, "seed": snakemake.params.seed}
write_derived(
    [snakemake.output.accounts, snakemake.output.told_apart],
    snakemake.input.delta,
    lambda: weigh_kinds(
        read_frame(snakemake.input.delta),
        pl.concat(read_frame(path, FORMS_NEEDED) for path in snakemake.input.answers),
        Headline.from_json(snakemake.params.headline),
        **settings,
        processes=snakemake.threads,
    ),
    {"stage": "weigh_kinds", "dataset": snakemake.wildcards.dataset, "code": snakemake.params.code, **settings},
)
