"""Fit readers of clean states, and of clean logits alone, that tell which group an example is in, out of fold.

Writes one row per rule, layer and example. Where nothing was probed, the table is empty.
"""

import torch

from anchorscope import job
from anchorscope.experiments.groups import read_groups
from anchorscope.experiments.tell_groups import read_group_states, tell_groups
from anchorscope.extract.axes import EXACT, Headline
from anchorscope.extract.store import open_activations
from anchorscope.files.frames import read_frame
from anchorscope.probe.written import write_derived

job.begin(snakemake.log[0])
torch.set_num_threads(snakemake.threads)
headline = Headline.from_json(snakemake.params.headline)
write_derived(
    snakemake.output,
    snakemake.input.delta,
    lambda: [
        tell_groups(
            read_group_states(open_activations(snakemake.input.activations, headline.grid(), [EXACT]), headline),
            read_groups(read_frame(snakemake.input.delta), headline),
            snakemake.params.seed,
        )
    ],
    {"stage": "tell_groups", "dataset": snakemake.wildcards.dataset, "code": snakemake.params.code},
)
