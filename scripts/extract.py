"""Run the passes of one knockout over a shard's chosen examples and keep the vectors that are probed.

Writes a file for each component and position that the config asks for: one row per example, one column per
prompt, intervention and layer. The clean passes are in the files of the first knockout, `exact_question`.
"""

import json
from pathlib import Path

from anchorscope import job
from anchorscope.extract.axes import Grid
from anchorscope.extract.job import ExtractSettings, extract_file

job.begin(snakemake.log[0])
extract_file(
    snakemake.input.chosen,
    manifest=snakemake.input.manifest,
    folder=Path(snakemake.output[0]).parent,
    settings=ExtractSettings.of(
        snakemake.params,
        snakemake.input.manifest,
        threads=snakemake.threads,
        grid=Grid(*map(tuple, json.loads(snakemake.params.grid))),
        knockout=snakemake.params.knockout,
    ),
    answers=snakemake.input.get("answers"),
)
