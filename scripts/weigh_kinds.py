"""Weigh four accounts of what the knockout does to one model's examples: two kinds of them, degrees, both or neither.

Writes how well each account predicts held-out examples (accounts), and what tells the kinds apart where there are two
(told_apart). Both are empty where nothing was probed.
"""

import json
from typing import TYPE_CHECKING

import polars as pl
import torch

from anchorscope.extract.axes import Headline
from anchorscope.files.frames import read_frame, write_frame
from anchorscope.files.logs import configure_logging
from anchorscope.files.provenance import provenance
from anchorscope.files.sealed_parquet import made_from
from anchorscope.summarise.weigh_kinds import ANSWERS_NEEDED, weigh_kinds

if TYPE_CHECKING:
    from snakemake.script import snakemake

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    torch.set_num_threads(snakemake.threads)
    params, files = snakemake.params, snakemake.input
    delta, probed = read_frame(files.delta), made_from(files.delta)
    settings = {"draws": params.draws, "seed": params.seed}
    if "not_probed" in probed:
        tables = (delta, delta)
    else:
        answers = pl.concat(read_frame(path, ANSWERS_NEEDED) for path in files.answers)
        tables = weigh_kinds(delta, answers, Headline(**json.loads(params.headline)), **settings)
    inherited = {key: probed[key] for key in ("model", "path", "not_probed") if key in probed}
    made = {
        "stage": "weigh_kinds",
        "dataset": snakemake.wildcards.dataset,
        "code": params.code,
        **settings,
        **inherited,
    }
    for name, table in zip(("accounts", "told_apart"), tables, strict=True):
        write_frame(snakemake.output[name], table, provenance(**made))
