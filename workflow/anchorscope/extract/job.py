"""The extract stage from files to files; needs torch, transformers, numpy and pyarrow, and no workflow engine."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from anchorscope.answer.prompts import PromptSet
from anchorscope.extract.axes import Grid
from anchorscope.extract.run import analysed, path_for, run_workload
from anchorscope.extract.sequences import build_workload
from anchorscope.extract.store import KEYS, ActivationWriter
from anchorscope.files.provenance import provenance
from anchorscope.files.sealed_parquet import read_table
from anchorscope.models.loading import leave_cards, load_fetched_tokenizer, load_model
from anchorscope.models.manifest import Manifest

NEEDED = [*KEYS.names, "question", "spans", "generated_ids", "exact_first", "exact_last", "answer_final", "refused"]


@dataclass(frozen=True)
class ExtractSettings:
    """What is extracted from a file of answers, and how."""

    prompts: PromptSet
    grid: Grid  # what is kept of every example
    dtype: str
    threads: int
    batch_tokens: int | None  # computed together; None for what suits the device
    balance: bool  # whether as many right as wrong answers are analysed
    seed: int  # of the balanced draw
    window: int | None  # layers that the knockout acts in, up to the one that is read; None for all
    code: str  # fingerprint


def extract_file(answers: Path | str, manifest: Path | str, folder: Path | str, settings: ExtractSettings) -> None:
    """Write the activations of a file of answers to a folder; its files are whole or absent.

    Everything that needs no card is done before one is taken.
    """
    examples = read_examples(answers, settings.balance, settings.seed)
    described = Manifest.read(manifest)
    tokenizer = load_fetched_tokenizer(described)
    workload = build_workload(tokenizer, settings.prompts.built(tokenizer), examples, positions=settings.grid.positions)
    model = load_model(described, settings.dtype, settings.threads)
    path = path_for(model, workload, settings.grid.components, settings.window)
    made_from = provenance(
        stage="extract",
        model=described.as_json(),
        prompts=settings.prompts.as_json(),
        dtype=settings.dtype,
        window=settings.window,
        path=path and path.as_json(),
        code=settings.code,
    )
    writer = ActivationWriter(
        folder,
        layers=described.layers,
        width=described.width,
        dtype=model.dtype,
        made_from=made_from,
        grid=settings.grid,
    )
    with writer:
        run_workload(
            model,
            workload,
            writer,
            path=path,
            batch_tokens=settings.batch_tokens,
            window=settings.window,
            computed=lambda: leave_cards(model),
        )


def read_examples(answers: Path | str, balance: bool, seed: int) -> pa.Table:
    """The answers that are analysed."""
    return analysed(read_table(answers, NEEDED), balance, seed)
