"""Fit readers of clean states, and of clean logits alone, that tell which group an example is in, out of fold.

Writes one row per rule, layer and example. Where nothing was probed, the table is empty.
"""

import json
from typing import TYPE_CHECKING

import torch

from anchorscope.experiments.groups import read_groups
from anchorscope.experiments.tell_groups import read_states, tell_groups
from anchorscope.extract.axes import EXACT, Headline
from anchorscope.extract.store import open_activations
from anchorscope.files.frames import read_frame, write_frame
from anchorscope.files.logs import configure_logging
from anchorscope.files.provenance import provenance
from anchorscope.files.sealed_parquet import made_from

if TYPE_CHECKING:
    from snakemake.script import snakemake

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    torch.set_num_threads(snakemake.threads)
    params, files = snakemake.params, snakemake.input
    probed, headline = made_from(files.delta), Headline(**json.loads(params.headline))
    table = read_frame(files.delta)
    if "not_probed" not in probed:
        reader = open_activations(files.activations, headline.grid(), [EXACT])
        table = tell_groups(read_states(reader, headline), read_groups(table, headline), params.seed)
    inherited = {key: probed[key] for key in ("model", "not_probed") if key in probed}
    made = {"stage": "tell_groups", "dataset": snakemake.wildcards.dataset, "code": params.code, **inherited}
    write_frame(snakemake.output[0], table, provenance(**made))
