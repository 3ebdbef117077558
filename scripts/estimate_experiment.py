"""Estimate what one experiment shows of one model on one dataset, with bootstrap intervals, under both groupings.

The table is empty where nothing was probed.
"""

import json

from anchorscope.experiments.estimate import estimate_experiment
from anchorscope.extract.axes import Headline
from anchorscope.files.logs import configure_logging
from anchorscope.probe.written import write_derived

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    params, files, names = snakemake.params, snakemake.input, snakemake.wildcards
    headline, settings = Headline(**json.loads(params.headline)), {"draws": params.draws, "seed": params.seed}
    made = {"stage": "estimate_experiment", "experiment": names.experiment, "dataset": names.dataset}
    write_derived(
        snakemake.output,
        files.delta,
        lambda: [estimate_experiment(names.experiment, dict(files.items()), headline, **settings)],
        {**made, "code": params.code, **settings},
    )
