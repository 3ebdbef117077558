"""The extract stage from files to files; needs torch, transformers, numpy and pyarrow, and no workflow engine."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from transformers import PreTrainedTokenizerBase

from anchorscope.answer.donors import DONORS
from anchorscope.answer.prompts import ModelSettings
from anchorscope.engine.door import Engine
from anchorscope.extract.axes import Grid, passes_of
from anchorscope.extract.run import run_workload
from anchorscope.extract.sequences import USED, Workload, build_replaced, build_workload, tell_uncut
from anchorscope.extract.store import KEYS, ActivationWriter
from anchorscope.files.provenance import provenance
from anchorscope.files.sealed_parquet import read_table
from anchorscope.models.hardware import computed_on
from anchorscope.models.loading import leave_cards, load_fetched_tokenizer, load_model
from anchorscope.models.manifest import Manifest

NEEDED = [
    *KEYS.names,
    *("question", "spans"),
    *("generated_ids", "exact_first", "exact_last", "answer_final"),
    *DONORS.names,
]


@dataclass(frozen=True)
class ExtractSettings(ModelSettings):
    """What is extracted from the chosen examples of a shard, and how."""

    grid: Grid  # what is kept of every example
    knockout: str  # which is run, with its control; or an experiment that replaces tokens


def extract_file(
    chosen: Path | str,
    manifest: Path | str,
    folder: Path | str,
    settings: ExtractSettings,
    answers: Path | str | None = None,
) -> None:
    """Write the activations of a file of chosen examples to a folder; its files are whole or absent.

    An experiment that replaces tokens takes them from any question of the shard, so it needs all `answers`.
    Everything that needs no card is done before one is taken.
    """
    examples = read_table(chosen, NEEDED)
    asked = None if answers is None else read_table(answers, USED)
    described = Manifest.read(manifest)
    tokenizer = load_fetched_tokenizer(described)
    workload = _workload(tokenizer, examples, asked, settings)
    model = load_model(described, settings.dtype, settings.threads)
    engine = Engine(model, settings.batch_tokens)
    path = engine.prepare(workload.work(settings.grid, engine.layers, settings.knockout))
    made_from = provenance(
        **settings.made("extract", described), computed=computed_on(model), path=path and path.as_json()
    )
    writer = ActivationWriter(
        folder,
        layers=described.layers,
        width=described.width,
        dtype=model.dtype,
        made_from=made_from,
        grid=settings.grid,
        knockout=settings.knockout,
    )
    with writer:
        run_workload(engine, workload, writer, path=path, computed=lambda: leave_cards(model))


def _workload(
    tokenizer: PreTrainedTokenizerBase, examples: pa.Table, asked: pa.Table | None, settings: ExtractSettings
) -> Workload:
    """What is run for the settings' knockout or experiment."""
    prompts, knockout, positions = settings.prompts.built(tokenizer), settings.knockout, settings.grid.positions
    if asked is not None:
        return build_replaced(
            tokenizer, prompts["first"], examples, asked=asked, experiment=knockout, positions=positions
        )
    workload = build_workload(tokenizer, prompts, examples, passes=passes_of(knockout), positions=positions)
    tell_uncut(workload, knockout)
    return workload
