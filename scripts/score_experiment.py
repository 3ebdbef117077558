"""Score the passes of an experiment with the probes of the main run, out of fold.

Writes a table like the delta table, with what was put in the place of which tokens. Where the answers are too few to
probe, it is empty and says why in its metadata.
"""

from anchorscope.experiments.scores import score_files
from anchorscope.files.logs import configure_logging
from anchorscope.probe.fitting import begin_fitting

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    params, names, files = snakemake.params, snakemake.wildcards, snakemake.input
    fitting = begin_fitting(
        snakemake.threads,
        cards=snakemake.resources.gpu,
        headline=params.headline,
        folds=params.folds,
        seed=params.seed,
        code=params.code,
    )
    score_files(
        files.activations,
        probes=files.probes,
        target=snakemake.output[0],
        experiment=names.experiment,
        dataset=names.dataset,
        fitting=fitting,
    )
