"""Draw one figure of the config in three formats: PNG, PDF and SVG."""

import json

import polars as pl

from anchorscope.figures import draw_family, notes, save
from anchorscope.files import read_json
from anchorscope.logs import configure_logging

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    params = snakemake.params
    spec = json.loads(params.figure)
    manifests = [read_json(path) for path in snakemake.input.manifests]
    titles = json.loads(params.titles)
    figure = draw_family(
        pl.read_parquet(snakemake.input.summary),
        models=dict(zip(spec["models"], titles, strict=True)),
        datasets=dict(json.loads(params.datasets)),
        rule=spec["rule"],
        intervention=spec["intervention"],
        component=spec["component"],
        position=spec["position"],
        note=notes(dict(zip(titles, manifests, strict=True)), json.loads(params.bundled)),
    )
    for path in snakemake.output:
        save(figure, path)
