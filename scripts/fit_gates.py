"""Fit the gates of Pathway Reweighting: how likely each example is Question-Anchored, out of fold.

Writes one row per example. Where the answers are too few to probe, the table is empty and says why in its metadata.
"""

import json
from typing import TYPE_CHECKING

import torch

from anchorscope.detect.gates import fit_gates
from anchorscope.extract.axes import Headline
from anchorscope.files.logs import configure_logging

if TYPE_CHECKING:
    from snakemake.script import snakemake

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    torch.set_num_threads(snakemake.threads)
    params = snakemake.params
    fit_gates(
        snakemake.input,
        target=snakemake.output[0],
        headline=Headline(**json.loads(params.headline)),
        folds=params.folds,
        seed=params.seed,
        made={"stage": "fit_gates", "dataset": snakemake.wildcards.dataset, "code": params.code},
    )
