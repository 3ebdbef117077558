"""Run clean and knocked-out passes over a shard's answers and keep the probed vectors.

Writes one row an analysed example, one column a component, position, prompt, intervention and layer.
"""

import json

from anchorscope.jobs import extract_file
from anchorscope.logs import configure_logging

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    params = snakemake.params
    extract_file(
        snakemake.input.answers,
        snakemake.input.manifest,
        snakemake.output[0],
        json.loads(params.prompts),
        params.dtype,
        snakemake.threads,
        params.batch_tokens,
        params.balance,
        params.seed,
        params.window,
        params.code,
    )
