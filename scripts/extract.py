"""Run clean and knocked-out passes over a shard's answers and keep the probed vectors.

Writes a file for each component and position that the config asks for: one row per analysed example, one column per
prompt, intervention and layer.
"""

import json
from pathlib import Path

from anchorscope.extract.axes import Grid
from anchorscope.extract.job import extract_file
from anchorscope.files.logs import configure_logging

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    params = snakemake.params
    extract_file(
        snakemake.input.answers,
        snakemake.input.manifest,
        Path(snakemake.output[0]).parent,
        prompts=json.loads(params.prompts),
        grid=Grid(*map(tuple, json.loads(params.grid))),
        dtype=params.dtype,
        threads=snakemake.threads,
        batch_tokens=params.batch_tokens,
        balance=params.balance,
        seed=params.seed,
        window=params.window,
        code=params.code,
    )
