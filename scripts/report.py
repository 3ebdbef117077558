"""Put figures, tables and settings on one self-contained page that opens without a network."""

import json
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from anchorscope.files import atomic
from anchorscope.logs import configure_logging
from anchorscope.notes import note
from anchorscope.report import deepest_layers, page

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    params = snakemake.params
    made = json.loads(pq.read_metadata(snakemake.input.summary).metadata[b"anchorscope"])
    text = page(
        figures={Path(path).stem: Path(path).read_bytes() for path in snakemake.input.figures},
        note=note(json.loads(params.bundled)),
        deepest=deepest_layers(pl.read_parquet(snakemake.input.summary)),
        examples=pl.read_csv(snakemake.input.examples),
        settings=json.dumps(json.loads(params.config), indent=2, ensure_ascii=False),
        made_by=" · ".join(f"{name} {version}" for name, version in sorted(made["versions"].items())),
    )
    with atomic(snakemake.output[0]) as target:
        target.write_text(text, encoding="utf-8")
