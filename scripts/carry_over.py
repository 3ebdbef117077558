"""Measure how well methods that learnt from some datasets do on another one.

Writes one row per method, training set and dataset that is tested. Datasets on which nothing was probed are left out.
What shares a question or a subject with the tested dataset is left out of training.
"""

import json

from anchorscope import job
from anchorscope.detect.scoring import carry_over
from anchorscope.probe.fitting import begin_fitting
from anchorscope.probe.pooled import by_dataset

job.begin(snakemake.log[0])
datasets = json.loads(snakemake.params.datasets)
of_kind = {kind: by_dataset(some, datasets) for kind, some in snakemake.input.items()}
carry_over(
    {name: {kind: some[name] for kind, some in of_kind.items()} for name in datasets},
    model=snakemake.wildcards.model,
    target=snakemake.output[0],
    answer_scores=snakemake.params.answer_scores,
    fitting=begin_fitting(snakemake.params, snakemake.threads, gpus=snakemake.resources.gpu),
)
