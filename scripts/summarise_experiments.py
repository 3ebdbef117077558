"""Put the estimates of one experiment for all models and datasets into one table, as Parquet and as CSV."""

import json

from anchorscope.experiments.gather import gather_experiment
from anchorscope.files.logs import configure_logging
from anchorscope.files.provenance import provenance
from anchorscope.summarise.tables import write_tables

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    params, name = snakemake.params, snakemake.wildcards.experiment
    pairs = [(model, dataset) for model, dataset in json.loads(params.pairs)]
    table = gather_experiment(pairs, list(snakemake.input), json.loads(params.sources))
    outputs = {name: snakemake.output.table, f"{name}_csv": snakemake.output.csv}
    write_tables({name: table}, outputs, provenance(stage="summarise_experiments", experiment=name, code=params.code))
