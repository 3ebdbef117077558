"""Put figures, tables and settings on one self-contained page that opens without a network."""

import json
from pathlib import Path

import polars as pl

from anchorscope.files import atomic, read_json
from anchorscope.frames import read_frame
from anchorscope.logs import configure_logging
from anchorscope.notes import notes, unprobed
from anchorscope.parquet import made_from
from anchorscope.report import deepest_layers, page

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    params = snakemake.params
    config = json.loads(params.config)
    summary = read_frame(snakemake.input.summary)
    about = made_from(snakemake.input.summary)
    titles = [{name: entry["title"] for name, entry in config[kind].items()} for kind in ("models", "datasets")]
    text = page(
        figures={
            "/".join(Path(path).with_suffix("").parts[-2:]): Path(path).read_bytes() for path in snakemake.input.figures
        },
        note="\n".join(filter(None, [*notes(summary, *titles), unprobed(about, *titles)])),
        claims=read_json(snakemake.input.claims),
        deepest=deepest_layers(summary, **config["headline"]),
        examples=pl.read_csv(snakemake.input.examples),
        settings=json.dumps(config, indent=2, ensure_ascii=False),
        made_by=" · ".join(f"{name} {version}" for name, version in sorted(about["versions"].items())),
    )
    with atomic(snakemake.output[0]) as target:
        target.write_text(text, encoding="utf-8")
