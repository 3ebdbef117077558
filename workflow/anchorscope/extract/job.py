"""The extract stage from files to files; needs torch, transformers, numpy and pyarrow, and no workflow engine."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from transformers import PreTrainedTokenizerBase

from anchorscope.answer.donors import DONORS
from anchorscope.answer.prompts import PromptSet
from anchorscope.engine.door import Engine
from anchorscope.extract.axes import REPLACING, WITHIN, Balance, Grid, passes_of
from anchorscope.extract.replaced_sequences import build_replaced
from anchorscope.extract.run import analysed, run_workload
from anchorscope.extract.sequences import Workload, build_workload, tell_uncut
from anchorscope.extract.store import KEYS, ActivationWriter
from anchorscope.files.provenance import provenance
from anchorscope.files.sealed_parquet import read_table
from anchorscope.models.hardware import computed_on
from anchorscope.models.loading import leave_cards, load_fetched_tokenizer, load_model
from anchorscope.models.manifest import Manifest

NEEDED = [
    *dict.fromkeys((*KEYS.names, *WITHIN.values())),
    *("question", "spans", "refused"),
    *("generated_ids", "exact_first", "exact_last", "answer_final"),
    *DONORS.names,
]


@dataclass(frozen=True)
class ExtractSettings:
    """What is extracted from a file of answers, and how."""

    prompts: PromptSet
    grid: Grid  # what is kept of every example
    dtype: str
    threads: int
    batch_tokens: int | None  # computed together; None for what suits the device
    balance: Balance  # whether as many right as wrong answers are analysed
    seed: int  # of the balanced draw
    knockout: str  # which is run, with its control; or an experiment that replaces tokens
    code: str  # fingerprint


def extract_file(answers: Path | str, manifest: Path | str, folder: Path | str, settings: ExtractSettings) -> None:
    """Write the activations of a file of answers to a folder; its files are whole or absent.

    Everything that needs no card is done before one is taken.
    """
    judged = read_table(answers, NEEDED)
    examples = analysed(judged, settings.balance, settings.seed)
    described = Manifest.read(manifest)
    tokenizer = load_fetched_tokenizer(described)
    workload = _workload(tokenizer, examples, judged, settings)
    model = load_model(described, settings.dtype, settings.threads)
    engine = Engine(model, settings.batch_tokens)
    path = engine.prepare(workload.work(settings.grid, engine.layers, settings.knockout))
    made_from = provenance(
        stage="extract",
        model=described.as_json(),
        prompts=settings.prompts.as_json(),
        dtype=settings.dtype,
        computed=computed_on(model),
        before_balance=counted(judged),
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
        knockout=settings.knockout,
    )
    with writer:
        run_workload(engine, workload, writer, path=path, computed=lambda: leave_cards(model))


def _workload(
    tokenizer: PreTrainedTokenizerBase, examples: pa.Table, judged: pa.Table, settings: ExtractSettings
) -> Workload:
    """What is run for the settings' knockout or experiment."""
    prompts, knockout, positions = settings.prompts.built(tokenizer), settings.knockout, settings.grid.positions
    if knockout in REPLACING:
        return build_replaced(
            tokenizer, prompts["first"], examples, asked=judged, experiment=knockout, positions=positions
        )
    workload = build_workload(tokenizer, prompts, examples, passes=passes_of(knockout), positions=positions)
    tell_uncut(workload, knockout)
    return workload


def counted(answers: pa.Table) -> dict[str, int]:
    """How many answers are right and how many hallucinated, before some are left out to balance them."""
    verdicts = answers["right"].to_pylist()
    return {"right": verdicts.count(True), "hallucinated": verdicts.count(False)}
