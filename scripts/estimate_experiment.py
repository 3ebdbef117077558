"""Estimate what one experiment shows of one model on one dataset, with bootstrap intervals, under both groupings.

The table is empty where nothing was probed.
"""

from anchorscope.experiments.estimate import estimate_experiment
from anchorscope.extract.axes import Headline
from anchorscope.files.logs import configure_logging
from anchorscope.probe.written import write_derived

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    headline = Headline.from_json(snakemake.params.headline)
    settings = {"draws": snakemake.params.draws, "seed": snakemake.params.seed}
    made = {
        "stage": "estimate_experiment",
        "experiment": snakemake.wildcards.experiment,
        "dataset": snakemake.wildcards.dataset,
    }
    write_derived(
        snakemake.output,
        snakemake.input.delta,
        lambda: [
            estimate_experiment(snakemake.wildcards.experiment, dict(snakemake.input.items()), headline, **settings)
        ],
        {**made, "code": snakemake.params.code, **settings},
    )
