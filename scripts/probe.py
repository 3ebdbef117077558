"""Cross-fit a probe for every layer, component and position, and measure delta P with it.

Writes the delta table, one row per example, layer, component, position and intervention, and the
layers table with each probe's AUC and calibration error. Where the answers are too few to probe, both
are empty and say why in their metadata, so that the other models and datasets reach the figures.
"""

import json
from pathlib import Path

import polars as pl
import torch

from anchorscope.extract.axes import Grid
from anchorscope.extract.store import ActivationReader
from anchorscope.files.frames import write_frame
from anchorscope.files.logs import configure_logging, log
from anchorscope.files.memory import give_back_freed_blocks
from anchorscope.files.provenance import provenance
from anchorscope.files.sealed_parquet import made_from
from anchorscope.probe.delta import TooFew, measure

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    torch.set_num_threads(snakemake.threads)
    give_back_freed_blocks()
    params, names = snakemake.params, snakemake.wildcards
    where = f"{names.model} on {names.dataset}"
    model = made_from(snakemake.input[0])["model"]
    about = {"stage": "probe", "model": model, "dataset": names.dataset, "folds": params.folds, "code": params.code}
    try:
        folders = list(dict.fromkeys(str(Path(path).parent) for path in snakemake.input))
        reader = ActivationReader(folders, Grid(*map(tuple, json.loads(params.grid))))
        on_card = snakemake.resources.gpu > 0 and torch.cuda.is_available()
        delta, layers = measure(reader, params.folds, params.seed, where, on_card)
    except TooFew as error:
        log.warning("%s", error)
        delta = layers = pl.DataFrame(schema={"id": pl.String})
        about["not_probed"] = str(error)
    for table, output in ((delta, snakemake.output.delta), (layers, snakemake.output.layers)):
        write_frame(output, table, provenance(**about))
