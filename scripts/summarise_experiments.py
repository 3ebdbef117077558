"""Put the estimates of one experiment for all models and datasets into one table, as Parquet and as CSV."""

import json

from anchorscope import job
from anchorscope.files.sealed_parquet import provenance
from anchorscope.summarise.tables import gather, read_coverage, write_tables

job.begin(snakemake.log[0])
name, files = snakemake.wildcards.experiment, list(snakemake.input)
coverage = read_coverage(json.loads(snakemake.params.pairs), files)
tables = gather(coverage, files={name: files}, sources=json.loads(snakemake.params.sources))
write_tables(
    {name: tables[name].drop("resampled")},
    {name: snakemake.output.table, f"{name}_csv": snakemake.output.csv},
    provenance(stage="summarise_experiments", experiment=name, code=snakemake.params.code),
)
