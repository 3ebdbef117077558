"""Measure how well methods that learnt from some datasets do on another one.

Writes one row per method, training set and dataset that is tested. Datasets on which nothing was probed are left out.
What shares a question or a subject with the tested dataset is left out of training.
"""

import json
from typing import TYPE_CHECKING

import torch

from anchorscope.detect.pooled import by_dataset
from anchorscope.detect.reading import MethodSettings
from anchorscope.detect.transfer import carry_over
from anchorscope.extract.axes import Headline
from anchorscope.files.logs import configure_logging
from anchorscope.files.memory import give_back_freed_blocks

if TYPE_CHECKING:
    from snakemake.script import snakemake

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    torch.set_num_threads(snakemake.threads)
    give_back_freed_blocks()
    params, datasets = snakemake.params, json.loads(snakemake.params.datasets)
    settings = MethodSettings(
        headline=Headline(**json.loads(params.headline)),
        folds=params.folds,
        seed=params.seed,
        answer_scores=params.answer_scores,
        on_card=snakemake.resources.gpu > 0 and torch.cuda.is_available(),
        code=params.code,
    )
    of_kind = {kind: by_dataset(some, datasets) for kind, some in snakemake.input.items()}
    files = {name: {kind: some[name] for kind, some in of_kind.items()} for name in datasets}
    carry_over(files, model=snakemake.wildcards.model, target=snakemake.output[0], settings=settings)
