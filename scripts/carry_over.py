"""Measure how well methods that learnt from some datasets do on another one.

Writes one row per method, training set and dataset that is tested. Datasets on which nothing was probed are left out.
What shares a question or a subject with the tested dataset is left out of training.
"""

import json
from typing import TYPE_CHECKING

import polars as pl
import torch

from anchorscope.detect.many_layers import probe_files
from anchorscope.detect.pooled import PooledReader
from anchorscope.detect.reading import read_files
from anchorscope.detect.transfer import SCHEMA, carried_over, plans, probe_plans
from anchorscope.extract.axes import EXACT, Headline
from anchorscope.extract.store import open_activations
from anchorscope.files.frames import write_frame
from anchorscope.files.logs import configure_logging
from anchorscope.files.memory import give_back_freed_blocks
from anchorscope.files.provenance import provenance
from anchorscope.files.sealed_parquet import made_from
from anchorscope.probe.examples import examples_of

if TYPE_CHECKING:
    from snakemake.script import snakemake

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    torch.set_num_threads(snakemake.threads)
    give_back_freed_blocks()
    params, files = snakemake.params, snakemake.input
    headline, datasets = Headline(**json.loads(params.headline)), json.loads(params.datasets)

    def of(kind: str, number: int) -> list[str]:
        """The files of one kind and dataset, as many as each of the others has; none where there are no samples."""
        some = list(files.get(kind, []))
        each = len(some) // len(datasets)
        return some[number * each : (number + 1) * each]

    numbers = range(len(datasets))
    probed = [number for number in numbers if "not_probed" not in made_from(of("reweighted", number)[0])]
    names = [datasets[number] for number in probed]
    readers = [open_activations(of("activations", number), headline.grid(), [EXACT]) for number in probed]
    readings = [
        read_files(
            reader,
            headline,
            examples_of(reader.keys, folds=params.folds, repeats=1, seed=params.seed, where=datasets[number]),
            **{kind: of(kind, number) for kind in ("answers", "asked", "samples", "reweighted")},
            answer_scores=params.answer_scores,
        )
        for number, reader in zip(probed, readers, strict=True)
    ]
    table = pl.DataFrame(schema=SCHEMA)
    if len(names) > 1:
        planned, pooled = plans(names, readings), PooledReader(dict(zip(names, readers, strict=True)))
        on_card = snakemake.resources.gpu > 0 and torch.cuda.is_available()
        probes = probe_files(pooled, probe_plans(planned), on_card) if planned.taught else []
        table = carried_over(planned, probes, params.seed)
    made = {"stage": "carry_over", "model": snakemake.wildcards.model, "code": params.code}
    write_frame(snakemake.output[0], table, provenance(**made))
