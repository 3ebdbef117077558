"""Score every example with every method of detection, out of fold.

Writes one row per method and example. Where the answers are too few to probe, the table is empty and says why in its
metadata.
"""

import json
from typing import TYPE_CHECKING

import torch

from anchorscope.detect.crossfit import score_methods
from anchorscope.detect.reading import MethodSettings
from anchorscope.extract.axes import Headline
from anchorscope.files.logs import configure_logging
from anchorscope.files.memory import give_back_freed_blocks

if TYPE_CHECKING:
    from snakemake.script import snakemake

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    torch.set_num_threads(snakemake.threads)
    give_back_freed_blocks()
    params = snakemake.params
    settings = MethodSettings(
        headline=Headline(**json.loads(params.headline)),
        folds=params.folds,
        seed=params.seed,
        answer_scores=params.answer_scores,
        on_card=snakemake.resources.gpu > 0 and torch.cuda.is_available(),
        code=params.code,
    )
    files, dataset = dict(snakemake.input.items()), snakemake.wildcards.dataset
    score_methods(files, dataset=dataset, target=snakemake.output[0], settings=settings)
