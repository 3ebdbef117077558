"""Measure how well methods that learnt from some datasets do on another one.

Writes one row per method, training set and dataset that is tested. Datasets on which nothing was probed are left out.
What shares a question or a subject with the tested dataset is left out of training.
"""

import json

from anchorscope.detect.pooled import by_dataset
from anchorscope.detect.transfer import carry_over
from anchorscope.files.logs import configure_logging
from anchorscope.probe.fitting import begin_fitting

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    params, datasets = snakemake.params, json.loads(snakemake.params.datasets)
    fitting = begin_fitting(
        snakemake.threads,
        cards=snakemake.resources.gpu,
        headline=params.headline,
        folds=params.folds,
        seed=params.seed,
        code=params.code,
    )
    of_kind = {kind: by_dataset(some, datasets) for kind, some in snakemake.input.items()}
    carry_over(
        {name: {kind: some[name] for kind, some in of_kind.items()} for name in datasets},
        model=snakemake.wildcards.model,
        target=snakemake.output[0],
        answer_scores=params.answer_scores,
        fitting=fitting,
    )
