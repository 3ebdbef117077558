"""Fit a probe for every layer, component and position, and measure delta P with it, out of fold.

Writes the delta table, one row per example, layer, component, position and intervention; the layers table with each
probe's AUC and calibration error; what the headline's probes say if a few labels are wrong; and these probes. Where the
answers are too few to probe, all are empty and say why in their metadata, so that the other models and datasets reach
the figures.
"""

import json
from typing import TYPE_CHECKING

import polars as pl
import torch

from anchorscope.choose.counts import before_balance
from anchorscope.extract.axes import Grid, Headline
from anchorscope.extract.store import open_activations
from anchorscope.files.frames import write_frame
from anchorscope.files.logs import configure_logging, log
from anchorscope.files.memory import give_back_freed_blocks
from anchorscope.files.provenance import provenance
from anchorscope.files.sealed_parquet import made_from, write_table
from anchorscope.probe.delta import measure
from anchorscope.probe.examples import TooFew

if TYPE_CHECKING:
    from snakemake.script import snakemake


def before(chosen: list[str]) -> str:
    """How many answers there were before the balance."""
    count = before_balance(chosen)
    said = "Before the balance, which `balance: false` switches off"
    return f"{said}, {count['right']} were right and {count['hallucinated']} hallucinated."


if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    torch.set_num_threads(snakemake.threads)
    give_back_freed_blocks()
    params, names, files = snakemake.params, snakemake.wildcards, snakemake.input
    extracted = made_from(files.activations[0])
    inherited = {key: extracted[key] for key in ("model", "path")}
    made = {"stage": "probe", "dataset": names.dataset, "folds": params.folds, "code": params.code, **inherited}
    made["repeats"] = params.repeats
    where, on_card = f"{names.model} on {names.dataset}", snakemake.resources.gpu > 0 and torch.cuda.is_available()
    try:
        grid = Grid(*map(tuple, json.loads(params.grid)))
        reader = open_activations(files.activations, grid, json.loads(params.knockouts))
        splits = {"folds": params.folds, "repeats": params.repeats, "seed": params.seed}
        headline = Headline(**json.loads(params.headline))
        delta, layers, errors, probes = measure(reader, **splits, where=where, on_card=on_card, headline=headline)
    except TooFew as error:
        made["not_probed"] = f"{error} {before(files.chosen)}"
        log.warning("%s", made["not_probed"])
        delta = layers = errors = pl.DataFrame(schema={"id": pl.String})
        probes = delta.to_arrow()
    write_frame(snakemake.output.delta, delta, provenance(**made))
    write_frame(snakemake.output.layers, layers, provenance(**made))
    write_frame(snakemake.output.label_errors, errors, provenance(**made))
    write_table(snakemake.output.probes, probes, provenance(**made))
