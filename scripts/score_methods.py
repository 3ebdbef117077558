"""Score every example with every method of detection, out of fold.

Writes one row per method and example. Where the answers are too few to probe, the table is empty and says why in its
metadata.
"""

import json
from typing import TYPE_CHECKING

import polars as pl
import torch

from anchorscope.detect.crossfit import SCHEMA, scores_table, trainings_of
from anchorscope.detect.many_layers import probe_files, probe_layers
from anchorscope.detect.reading import read_files
from anchorscope.extract.axes import EXACT, Headline
from anchorscope.extract.store import open_activations
from anchorscope.files.frames import write_frame
from anchorscope.files.logs import configure_logging, log
from anchorscope.files.memory import give_back_freed_blocks
from anchorscope.files.provenance import provenance
from anchorscope.files.sealed_parquet import made_from
from anchorscope.probe.examples import TooFew, examples_of

if TYPE_CHECKING:
    from snakemake.script import snakemake

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    torch.set_num_threads(snakemake.threads)
    give_back_freed_blocks()
    params, names, files = snakemake.params, snakemake.wildcards, snakemake.input
    headline = Headline(**json.loads(params.headline))
    made = {"stage": "score_methods", "dataset": names.dataset, "folds": params.folds, "code": params.code}
    made["model"] = made_from(files.activations[0])["model"]
    reader = open_activations(files.activations, headline.grid(), [EXACT])
    where = f"{names.model} on {names.dataset}"
    try:
        examples = examples_of(reader.keys, folds=params.folds, repeats=1, seed=params.seed, where=where)
        kinds = {kind: files.get(kind, []) for kind in ("answers", "asked", "samples", "reweighted")}
        reading = read_files(reader, headline, examples, **kinds, answer_scores=params.answer_scores)
        (probes,) = probe_files(
            reader,
            lambda clean: [
                probe_layers(clean, reading.labels.to(clean.device), trainings_of(reading).to(clean.device))
            ],
            on_card=snakemake.resources.gpu > 0 and torch.cuda.is_available(),
        )
        table = scores_table(reading, probes, params.seed)
    except TooFew as error:
        made["not_probed"] = str(error)
        log.warning("%s", error)
        table = pl.DataFrame(schema=SCHEMA)
    write_frame(snakemake.output[0], table, provenance(**made))
