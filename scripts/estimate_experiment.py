"""Estimate what one experiment shows of one model on one dataset, with bootstrap intervals, under both groupings.

The table is empty where nothing was probed.
"""

from anchorscope import job
from anchorscope.experiments.catalogue import estimate_experiment
from anchorscope.experiments.record import Material
from anchorscope.extract.axes import Headline
from anchorscope.probe.written import write_derived

job.begin(snakemake.log[0])
name = snakemake.wildcards.experiment
settings = {"bootstrap_draws": snakemake.params.bootstrap_draws, "seed": snakemake.params.seed}
given = Material(dict(snakemake.input.items()), Headline.from_json(snakemake.params.headline), **settings)
write_derived(
    snakemake.output,
    snakemake.input.delta,
    lambda: [estimate_experiment(name, given)],
    {
        "stage": "estimate_experiment",
        "experiment": name,
        "dataset": snakemake.wildcards.dataset,
        "code": snakemake.params.code,
        **settings,
    },
)
