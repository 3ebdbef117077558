"""Bring a model's files here and describe them.

Writes a folder with the model's safetensors and tokenizer (links, unless they had to be converted;
no safetensors where the weights are random) and a manifest that describes it.
"""

import json
from pathlib import Path

from anchorscope import job
from anchorscope.models.fetch import fetch_model

job.begin(snakemake.log[0])
fetch_model(
    name=snakemake.wildcards.model,
    source=json.loads(snakemake.params.source),
    folder=Path(snakemake.output.folder),
    manifest=Path(snakemake.output.manifest),
    threads=snakemake.threads,
)
