"""The extract stage from files to a file; needs torch, transformers, numpy and pyarrow, and no workflow engine."""

from pathlib import Path

import pyarrow as pa

from anchorscope.extraction import analysed, extract
from anchorscope.files import atomic, provenance, read_json
from anchorscope.loading import load_model, load_tokenizer
from anchorscope.parquet import read_table
from anchorscope.prompts import build_prompt
from anchorscope.store import KEYS, ActivationWriter

NEEDED = [*KEYS.names, "question", "spans", "generated_ids", "exact_first", "exact_last", "answer_final", "refused"]


def extract_file(
    answers: Path,
    manifest: Path,
    output: Path,
    prompts: dict,  # a style, and its text for each prompt
    dtype: str,
    threads: int,
    batch_tokens: int | None,
    balance: bool,
    seed: int,
    window: int | None,
    code: str,
) -> None:
    """Write the activations of a file of answers; the file is whole or absent."""
    examples = read_examples(answers, balance, seed)
    about = read_json(manifest)
    tokenizer = load_tokenizer(about)
    model = load_model(about, dtype, threads)
    built = {name: build_prompt(tokenizer, prompts["style"], text) for name, text in prompts["texts"].items()}
    made_from = provenance(stage="extract", model=about, prompts=prompts, dtype=dtype, window=window, code=code)
    with (
        atomic(output) as target,
        ActivationWriter(target, about["layers"], about["width"], model.dtype, made_from) as writer,
    ):
        extract(model, tokenizer, built, examples, writer, batch_tokens, window)


def read_examples(answers: Path, balance: bool, seed: int) -> pa.Table:
    """The answers that are analysed."""
    return analysed(read_table(answers, NEEDED), balance, seed)
