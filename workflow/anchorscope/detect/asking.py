"""What a model says of its own answers: whether each is true, and how sure it is.

It is shown a question with its answer, and asked about it. On disk that is one row per analysed example.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from anchorscope.answer.prompts import PLACEHOLDER, Demonstrations, Prompt, PromptSet, chat_prompt, encode
from anchorscope.engine.door import Engine
from anchorscope.engine.work import Variant, shared_tokens
from anchorscope.files.sealed_parquet import provenance, write_table

TRUE, SURE = ASKED = ("about_true", "about_sure")  # whether the answer is true, and how sure the model is of that
OPTIONS = {TRUE: ("yes", "no"), SURE: tuple("0123456789")}
SCHEMA = pa.schema([("id", pa.string()), ("p_true", pa.float32()), ("confidence", pa.float32())])


@dataclass(frozen=True)
class Asking:
    """One thing that is asked about every answer."""

    sequences: list[list[int]]  # token ids of each example's prompt, up to where the model says one of the options
    options: list[int]  # the token by which each option is told from the others


def build_askings(
    tokenizer: PreTrainedTokenizerBase, prompts: PromptSet, questions: Sequence[str], answers: Sequence[str]
) -> list[Asking]:
    """What is asked about the answers to some questions, in the order of `ASKED`."""
    shown = [
        f"{question}\nAnswer: {_without_marks(tokenizer, answer)}"
        for question, answer in zip(questions, answers, strict=True)
    ]
    return [
        _asking(tokenizer, prompt, shown, OPTIONS[name]) for name, prompt in _about_prompts(tokenizer, prompts).items()
    ]


def _without_marks(tokenizer: PreTrainedTokenizerBase, answer: str) -> str:
    """An answer without what spells a control token, which would end a turn, or the text."""
    for added in tokenizer.added_tokens_decoder.values():
        answer = answer.replace(added.content, "") if added.special else answer
    return answer


def _about_prompts(tokenizer: PreTrainedTokenizerBase, prompts: PromptSet) -> dict[str, Prompt]:
    """The text around a question and its answer, for each thing that is asked."""
    header, texts = prompts.texts["about_header"], {name: cast(str, prompts.texts[name]) for name in ASKED}
    if prompts.style == "chat":
        return {
            name: chat_prompt(tokenizer, f"{header}\n\nQuestion: {PLACEHOLDER}\n\n{text}")
            for name, text in texts.items()
        }
    shots = _shown_shots(cast(Demonstrations, prompts.texts["about_shots"]), texts)
    before = f"{header}\n\n{shots}Question: "
    return {name: Prompt(before, f"\n{text}", special_tokens=True) for name, text in texts.items()}


def _shown_shots(shots: Demonstrations, texts: dict[str, str]) -> str:
    """Judged answers. Which of the two comes first takes turns, because each is asked right after an answer."""
    shown = []
    for number, shot in enumerate(shots):
        said = [f"{texts[TRUE]} {shot['true']}", f"{texts[SURE]} {shot['sure']}"]
        first, second = said if number % 2 == 0 else reversed(said)
        shown.append(f"Question: {shot['question']}\nAnswer: {shot['answer']}\n{first}\n{second}\n\n")
    return "".join(shown)


def _asking(tokenizer: PreTrainedTokenizerBase, prompt: Prompt, shown: list[str], options: Sequence[str]) -> Asking:
    """The prompts of all examples, and the tokens of the options as they are in these prompts.

    An option can begin with a token that all of them begin with, such as a space before a digit. That token is then the
    prompt's last one.
    """
    gap = "" if prompt.after[-1:].isspace() else " "
    ended = [replace(prompt, after=f"{prompt.after}{gap}{option}") for option in options]
    spelt = [encode(tokenizer, one, shown[:1] or [""])[0].ids for one in ended]
    start = shared_tokens(spelt)
    tokens = [ids[start] for ids in spelt if start < len(ids)]
    if len(set(tokens)) < len(options):
        raise ValueError(
            f"The model's tokenizer does not tell {', '.join(options)} apart by one token, so what the model says of "
            "its answers cannot be read; use the other style of `prompt` for it."
        )
    # Each prompt is tokenised with an option behind it, which is then taken away.
    taken = spelt[0][start:]
    whole = [item.ids for item in encode(tokenizer, ended[0], shown)]
    for ids, text in zip(whole, shown, strict=True):
        if ids[-len(taken) :] != taken:
            raise ValueError(f"The model's tokenizer joins {options[0]!r} with the text before it in {text!r}.")
    return Asking([ids[: -len(taken)] for ids in whole], tokens)


def ask_about(engine: Engine, askings: list[Asking]) -> list[Tensor]:
    """The logits [examples, options] of what the model would say, for each asking.

    The askings of an example share its question and answer, and all examples what comes before, where the prompts do.
    """
    items = [
        [[Variant(np.array(ids), read=[len(ids) - 1]) for ids in some]]
        for some in zip(*(asking.sequences for asking in askings), strict=True)
    ]
    found = [torch.empty(len(items), len(asking.options)) for asking in askings]

    def take(batch: list[int], logits: Tensor) -> None:
        for asking, rows, own in zip(askings, found, logits, strict=True):
            rows[batch] = own[:, asking.options].float().cpu()

    engine.logits(items, take, what="asking about answers")
    return found


def write_asked(target: Path | str, ids: list[str], said: list[Tensor], made: dict) -> None:
    """Write what the logits [examples, options] of both askings come to; `made` says what they were made from."""
    true, sure = said
    odd = true.isnan().any(dim=1) | sure.isnan().any(dim=1)
    if odd.any():
        raise ValueError(
            f"What the model says of example {ids[int(odd.int().argmax())]} is not a number; "
            "set its dtype to bfloat16 or float32."
        )
    p_true = true.softmax(dim=1)[:, 0]
    confidence = sure.argmax(dim=1).to(torch.float32) / (len(OPTIONS[SURE]) - 1)
    table = pa.table([ids, p_true.numpy(), confidence.numpy()], schema=SCHEMA)
    write_table(target, table, provenance(**made))
