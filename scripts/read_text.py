"""Measure what the text of questions and answers alone tells about the label, beside the probes.

Writes one row per component, position and reader. Where nothing was probed, the table is empty.
"""

import polars as pl
import torch

from anchorscope.files.frames import read_frame
from anchorscope.files.logs import configure_logging
from anchorscope.probe.readers import ANSWERS_NEEDED, LOGITS_NEEDED, text_table
from anchorscope.probe.written import write_derived

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    torch.set_num_threads(snakemake.threads)
    params, files, names = snakemake.params, snakemake.input, snakemake.wildcards

    def read() -> list[pl.DataFrame]:
        table = text_table(
            read_frame(files.delta, LOGITS_NEEDED),
            read_frame(files.layers),
            pl.concat(read_frame(path, ANSWERS_NEEDED) for path in files.answers),
            folds=params.folds,
            seed=params.seed,
            where=f"{names.model} on {names.dataset}",
        )
        return [table]

    made = {"stage": "read_text", "dataset": names.dataset, "folds": params.folds, "code": params.code}
    write_derived(snakemake.output, files.delta, read, made)
