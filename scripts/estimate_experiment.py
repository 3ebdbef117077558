"""Estimate what one experiment shows of one model on one dataset, with bootstrap intervals, under both groupings.

The table is empty where nothing was probed.
"""

from anchorscope.experiments.estimate import estimate_experiment
from anchorscope.extract.axes import Headline
from anchorscope.files.logs import configure_logging
from anchorscope.probe.written import write_derived

configure_logging(snakemake.log[0])
name, settings = snakemake.wildcards.experiment, {"draws": snakemake.params.draws, "seed": snakemake.params.seed}
headline = Headline.from_json(snakemake.params.headline)
write_derived(
    snakemake.output,
    snakemake.input.delta,
    lambda: [estimate_experiment(name, dict(snakemake.input.items()), headline, **settings)],
    {
        "stage": "estimate_experiment",
        "experiment": name,
        "dataset": snakemake.wildcards.dataset,
        "code": snakemake.params.code,
        **settings,
    },
)
