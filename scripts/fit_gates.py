"""Fit the gates of Pathway Reweighting: how likely each example is Question-Anchored, out of fold.

Writes one row per example. Where the answers are too few to probe, the table is empty and says why in its metadata.
"""

from anchorscope.detect.pathways import fit_gates
from anchorscope.files.logs import configure_logging
from anchorscope.probe.fitting import begin_fitting

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    params = snakemake.params
    fitting = begin_fitting(
        snakemake.threads,
        cards=0,
        headline=params.headline,
        folds=params.folds,
        seed=params.seed,
        code=params.code,
    )
    dataset = snakemake.wildcards.dataset
    fit_gates(snakemake.input, dataset=dataset, target=snakemake.output[0], fitting=fitting)
