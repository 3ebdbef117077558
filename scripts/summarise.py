"""Put the estimates of all models and datasets into one table per kind, and judge the claims.

Writes summary, series, kinds, accounts, told_apart, strata, forms, label_errors, deepest, layers and text as Parquet
and as CSV, and the claims as JSON and as a page. A model and dataset that could not be probed are left out, and named
in the metadata and on the page. Salmons stand behind all others in the tables, and no claim is about them.
"""

import json
from pathlib import Path

import yaml

from anchorscope import job
from anchorscope.experiments.summarise_job import summarise_files
from anchorscope.extract.axes import Headline
from anchorscope.summarise.findings import Comparison

job.begin(snakemake.log[0])
summarise_files(
    dict(snakemake.input.items()),
    outputs=dict(snakemake.output.items()),
    pairs=json.loads(snakemake.params.pairs),
    salmons=json.loads(snakemake.params.salmons),
    sources=json.loads(snakemake.params.sources),
    headline=Headline.from_json(snakemake.params.headline),
    comparison=Comparison(
        json.loads(snakemake.params.families),
        json.loads(snakemake.params.layouts),
        yaml.safe_load(Path(snakemake.input.landmarks).read_text(encoding="utf-8")),
    ),
    code=snakemake.params.code,
)
