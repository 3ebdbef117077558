"""The extract stage from files to files; needs torch, transformers, numpy and pyarrow, and no workflow engine."""

from pathlib import Path

import pyarrow as pa

from anchorscope.answer.prompts import build_prompt
from anchorscope.extract.axes import PASSES, Grid
from anchorscope.extract.run import analysed, extract_rows
from anchorscope.extract.sequences import build_rows
from anchorscope.extract.store import KEYS, ActivationWriter
from anchorscope.files.identity import read_json
from anchorscope.files.provenance import provenance
from anchorscope.files.sealed_parquet import read_table
from anchorscope.models.loading import leave_cards, load_model, load_tokenizer

NEEDED = [*KEYS.names, "question", "spans", "generated_ids", "exact_first", "exact_last", "answer_final", "refused"]


def extract_file(
    answers: Path,
    manifest: Path,
    folder: Path,
    *,
    prompts: dict,  # a style, and its text for each prompt
    grid: Grid,
    dtype: str,
    threads: int,
    batch_tokens: int | None,
    balance: bool,
    seed: int,
    window: int | None,
    code: str,
) -> None:
    """Write the activations of a file of answers to a folder; its files are whole or absent.

    Everything that needs no card is done before one is taken.
    """
    examples = read_examples(answers, balance, seed)
    about = read_json(manifest)
    tokenizer = load_tokenizer(about)
    built = {name: build_prompt(tokenizer, prompts["style"], text) for name, text in prompts["texts"].items()}
    rows, shared = build_rows(tokenizer, built, examples, PASSES, grid.positions)
    keys = examples.select(KEYS.names).to_pylist()
    made_from = provenance(stage="extract", model=about, prompts=prompts, dtype=dtype, window=window, code=code)
    model = load_model(about, dtype, threads)
    with ActivationWriter(folder, about["layers"], about["width"], model.dtype, made_from, grid) as writer:
        extract_rows(model, rows, shared, keys, writer, batch_tokens, window, computed=lambda: leave_cards(model))


def read_examples(answers: Path, balance: bool, seed: int) -> pa.Table:
    """The answers that are analysed."""
    return analysed(read_table(answers, NEEDED), balance, seed)
