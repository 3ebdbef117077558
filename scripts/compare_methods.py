"""Compare the methods of detection on all models and datasets.

Writes detection, transfer, reliability, coverage and pathways as Parquet and as CSV. A model and dataset that could not
be probed are left out, and named in the metadata.
"""

import json
from pathlib import Path

import yaml

from anchorscope import job
from anchorscope.detect.compare import Described, gather_detection
from anchorscope.files.identity import read_json
from anchorscope.files.sealed_parquet import provenance
from anchorscope.summarise.tables import write_tables

job.begin(snakemake.log[0])
pairs = [(model, dataset) for model, dataset in json.loads(snakemake.params.pairs)]
models = list(dict.fromkeys(model for model, _ in pairs))
tables, about = gather_detection(
    files=dict(zip(pairs, snakemake.input.scores, strict=True)),
    transfers=dict(zip(models, snakemake.input.transfer, strict=True)),
    run=Described(
        models=dict(zip(models, map(read_json, snakemake.input.manifests), strict=True)),
        sources=json.loads(snakemake.params.sources),
        layouts=json.loads(snakemake.params.layouts),
        published=yaml.safe_load(Path(snakemake.input.landmarks).read_text(encoding="utf-8"))["detection"],
    ),
)
write_tables(tables, snakemake.output, provenance(stage="compare_methods", code=snakemake.params.code, **about))
