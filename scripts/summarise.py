"""Average delta P over each anchor's examples, with bootstrap intervals.

Writes one row a model, dataset, component, position, intervention, rule, anchor and layer, as
Parquet and as CSV.
"""

import json

import polars as pl

from anchorscope.files import atomic, made_from, provenance
from anchorscope.logs import configure_logging, progress
from anchorscope.summary import summarise

ORDER = ["model", "weights", "dataset", "component", "position", "intervention", "rule", "anchor", "layer"]

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    params = snakemake.params
    pairs = json.loads(params.pairs)
    jobs = list(zip(pairs, snakemake.input.delta, snakemake.input.layers, strict=True))
    models = {model: made_from(delta)["model"] for (model, _), delta, _ in jobs}
    tables = [
        summarise(pl.read_parquet(delta), pl.read_parquet(layers), params.draws, params.seed).with_columns(
            model=pl.lit(model), weights=pl.lit(models[model]["weights"]), dataset=pl.lit(dataset)
        )
        for (model, dataset), delta, layers in progress(jobs, len(jobs), "summarising")
    ]
    summary = pl.concat(tables).select(*ORDER, pl.exclude(ORDER))
    about = provenance(stage="summarise", models=models, draws=params.draws, seed=params.seed, code=params.code)
    with atomic(snakemake.output.parquet) as target:
        summary.write_parquet(target, metadata=about)
    with atomic(snakemake.output.csv) as target:
        summary.write_csv(target, float_precision=6)
