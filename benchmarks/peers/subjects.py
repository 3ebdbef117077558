"""The model and the examples that everything here is measured on."""

import sys
from pathlib import Path

import polars as pl
import pyarrow as pa
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common import ROOT, TWO_PASSES, synthetic_workload

from anchorscope.answer.answers import MAX_NEW_TOKENS, answer_questions
from anchorscope.answer.prompts import Prompt, PromptSet
from anchorscope.engine.door import Engine
from anchorscope.extract.sequences import Workload, build_workload
from anchorscope.models.loading import random_model
from anchorscope.questions.local_rows import read_lines
from anchorscope.questions.normalize import normalize

RESOURCES = ROOT / "workflow" / "resources"
SETS = {"popqa-mini": "popqa", "triviaqa-mini": "triviaqa", "hotpotqa-mini": "hotpotqa", "nq-mini": "nq"}


def load_model(folder: str | None, shape: str | None, dtype: torch.dtype, device: torch.device) -> PreTrainedModel:
    """A model from a folder, or random weights of a published shape."""
    if shape:
        return random_model(RESOURCES / "shapes" / f"{shape}.json", seed=0, dtype=dtype, device=device)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    return model.to(device).eval().requires_grad_(False)


def load_tokenizer(folder: str | None) -> PreTrainedTokenizerBase | None:
    return AutoTokenizer.from_pretrained(folder) if folder else None


def bundled_questions(count: int) -> list[dict]:
    """As many of each bundled set."""
    found: list[dict] = []
    for name, layout in SETS.items():
        raw = pl.from_arrow(read_lines(RESOURCES / "questions" / f"{name}.jsonl"))
        found += normalize(raw, layout, seed=0, where=name)[0].head(count // len(SETS)).to_dicts()
    return found


def first_prompt(tokenizer: PreTrainedTokenizerBase) -> Prompt:
    return PromptSet.bundled("few_shot").built(tokenizer)["first"]


def answered(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, count: int) -> pa.Table:
    """The model's own answers to bundled questions, as the answer stage writes them, where an answer could be found."""
    table = answer_questions(
        Engine(model), tokenizer, first_prompt(tokenizer), bundled_questions(count), MAX_NEW_TOKENS
    )
    return table.filter(table.column("exact_first").is_valid())


def examples(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None, count: int) -> Workload:
    """The clean and the knocked-out pass of about `count` examples: of real answers where there is a tokenizer."""
    if tokenizer is None:
        return synthetic_workload(count, prefix=119, suffix=24, passes=TWO_PASSES)
    prompts = {"first": first_prompt(tokenizer)}
    return build_workload(tokenizer, prompts, answered(model, tokenizer, count), passes=TWO_PASSES)
