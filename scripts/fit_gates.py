"""Fit the gates of Pathway Reweighting: how likely each example is Question-Anchored, out of fold.

Writes one row per example. Where the answers are too few to probe, the table is empty and says why in its metadata.
"""

import json
from typing import TYPE_CHECKING

import polars as pl
import torch

from anchorscope.detect.gates import SCHEMA, gates_table
from anchorscope.detect.reading import read_states
from anchorscope.extract.axes import EXACT, Headline
from anchorscope.extract.store import open_activations
from anchorscope.files.frames import write_frame
from anchorscope.files.logs import configure_logging, log
from anchorscope.files.provenance import provenance
from anchorscope.files.sealed_parquet import made_from
from anchorscope.probe.examples import TooFew, examples_of

if TYPE_CHECKING:
    from snakemake.script import snakemake

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    torch.set_num_threads(snakemake.threads)
    params, names = snakemake.params, snakemake.wildcards
    headline = Headline(**json.loads(params.headline))
    made = {"stage": "fit_gates", "dataset": names.dataset, "folds": params.folds, "code": params.code}
    made["model"] = made_from(snakemake.input[0])["model"]
    reader = open_activations(snakemake.input, headline.grid(), [EXACT])
    where = f"{names.model} on {names.dataset}"
    try:
        examples = examples_of(reader.keys, folds=params.folds, repeats=1, seed=params.seed, where=where)
        table = gates_table(read_states(reader, headline), examples)
    except TooFew as error:
        made["not_probed"] = str(error)
        log.warning("%s", error)
        table = pl.DataFrame(schema=SCHEMA)
    write_frame(snakemake.output[0], table, provenance(**made))
