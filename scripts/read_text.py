"""Measure what the text of questions and answers alone tells about the label, beside the probes.

Writes one row per component, position and reader. Where nothing was probed, the table is empty.
"""

import polars as pl
import torch

from anchorscope import job
from anchorscope.files.frames import read_frame
from anchorscope.probe.readers import LOGITS_NEEDED, TEXT_NEEDED, text_table
from anchorscope.probe.written import write_derived

job.begin(snakemake.log[0])
torch.set_num_threads(snakemake.threads)
write_derived(
    snakemake.output,
    snakemake.input.delta,
    lambda: [
        text_table(
            read_frame(snakemake.input.delta, LOGITS_NEEDED),
            read_frame(snakemake.input.layers),
            pl.concat(read_frame(path, TEXT_NEEDED) for path in snakemake.input.answers),
            folds=snakemake.params.folds,
            seed=snakemake.params.seed,
            where=f"{snakemake.wildcards.model} on {snakemake.wildcards.dataset}",
        )
    ],
    {
        "stage": "read_text",
        "dataset": snakemake.wildcards.dataset,
        "folds": snakemake.params.folds,
        "code": snakemake.params.code,
    },
)
