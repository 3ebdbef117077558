"""Prompts: text before and after the question, which tokens the question has in them, and the jobs that ask by them."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from transformers import PreTrainedTokenizerBase

from anchorscope.engine.door import Engine
from anchorscope.files.bundled import RESOURCES
from anchorscope.files.faults import shortened
from anchorscope.files.identity import read_json
from anchorscope.models.chat_template import render_within_limits
from anchorscope.models.loading import computed_on, load_model
from anchorscope.models.manifest import Manifest
from anchorscope.text.normal_words import Span

# Some chat templates print the date. A fixed one keeps prompts the same tomorrow.
TEMPLATE_DATE = "26 Jul 2024"
PLACEHOLDER = "{question}"
BUNDLED_PROMPTS = RESOURCES / "prompts.json"


Demonstrations = list[dict[str, str]]  # questions with their answers


@dataclass(frozen=True)
class PromptSet:
    """Prompts of one style, by name: "first", under which a model answers, "second", or "unsure".

    Or the parts of the prompts that ask about answers, whose names begin with "about".
    """

    style: str  # few_shot or chat
    texts: dict[str, Demonstrations | str]  # demonstrations for few_shot, an instruction for chat

    @classmethod
    def from_json(cls, text: str, style: str) -> "PromptSet":
        """The prompt set of a style from a list of several, or the only one in the list, whatever its style."""
        sets = [cls(**one) for one in json.loads(text)]
        return next(one for one in sets if len(sets) == 1 or one.style == style)

    @classmethod
    def bundled(cls, style: str) -> "PromptSet":
        """The two prompts that come with the workflow and under which examples are measured."""
        texts = read_json(BUNDLED_PROMPTS)[style]
        return cls(style, {name: texts[name] for name in ("first", "second")})

    def as_json(self) -> dict:
        return asdict(self)

    def built(self, tokenizer: PreTrainedTokenizerBase) -> dict[str, "Prompt"]:
        """Every prompt as a model with this tokenizer reads it."""
        return {name: build_prompt(tokenizer, text) for name, text in self.texts.items()}


@dataclass(frozen=True)
class Prompt:
    """The text around a question."""

    before: str
    after: str
    special_tokens: bool  # whether the tokenizer adds its own (a chat template already has them)

    @property
    def space(self) -> str:
        """What a model puts between the prompt and its answer: a space, where the prompt does not end with one."""
        return "" if self.after[-1:].isspace() else " "


@dataclass(frozen=True)
class Encoded:
    """A prompt with its question filled in: token ids, and the characters that each covers."""

    ids: list[int]
    offsets: list[tuple[int, int]]
    question: Span  # characters of the question within the prompt
    special: frozenset[int]  # indices of the tokenizer's special tokens

    @cached_property
    def _offsets(self) -> np.ndarray:
        return np.array(self.offsets)

    @property
    def question_tokens(self) -> list[int]:
        return tokens_over(self._offsets, [self.question])

    def tokens_of(self, spans: Sequence[Span]) -> list[int]:
        """Indices of the tokens over some spans of the question."""
        shift = self.question.start
        return tokens_over(self._offsets, [Span(span.start + shift, span.end + shift) for span in spans])


def few_shot_prompt(demonstrations: Demonstrations) -> Prompt:
    """Question-answer pairs, then the question, for a base model."""
    shots = "".join(f"Question: {shot['question']}\nAnswer: {shot['answer']}\n\n" for shot in demonstrations)
    return Prompt(f"{shots}Question: ", "\nAnswer:", special_tokens=True)


def chat_prompt(tokenizer: PreTrainedTokenizerBase, instruction: str) -> Prompt:
    """The model's own chat template around `instruction`, with thinking switched off where there is such a switch."""
    if not tokenizer.chat_template:
        raise ValueError("The model's tokenizer has no chat template; use `prompt: few_shot`.")
    before, found, after = _rendered(tokenizer, instruction).partition(PLACEHOLDER)
    if not found:
        raise ValueError("The model's chat template changes the text of the user's message; use `prompt: few_shot`.")
    if PLACEHOLDER in after:
        raise ValueError("The model's chat template repeats the user's message; use `prompt: few_shot`.")
    return Prompt(before, after, special_tokens=False)


def _rendered(tokenizer: PreTrainedTokenizerBase, instruction: str) -> str:
    asked = [{"role": "user", "content": instruction}]
    how: dict[str, Any] = {"enable_thinking": False, "date_string": TEMPLATE_DATE}  # for the template itself
    try:
        return render_within_limits(
            lambda: cast(str, tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True, **how))
        )
    except ValueError as error:
        raise ValueError(
            f"The model's chat template cannot be rendered: {error}; mend it, or use `prompt: few_shot`."
        ) from error


def build_prompt(tokenizer: PreTrainedTokenizerBase, text: Demonstrations | str) -> Prompt:
    """A few-shot prompt from demonstrations, a chat prompt from an instruction."""
    return chat_prompt(tokenizer, text) if isinstance(text, str) else few_shot_prompt(text)


def encode(tokenizer: PreTrainedTokenizerBase, prompt: Prompt, questions: list[str]) -> list[Encoded]:
    """Tokenise the whole prompt of every question."""
    if not questions:
        return []
    refuse_control_tokens(tokenizer, questions, "question")
    batch = tokenizer(
        [f"{prompt.before}{question}{prompt.after}" for question in questions],
        add_special_tokens=prompt.special_tokens,
        return_offsets_mapping=True,
        return_attention_mask=False,
    )
    start = len(prompt.before)
    marks = {token for token, added in tokenizer.added_tokens_decoder.items() if added.special}
    return [
        Encoded(
            ids=ids,
            offsets=[tuple(pair) for pair in offsets],
            question=Span(start, start + len(question)),
            special=frozenset(index for index, token in enumerate(ids) if token in marks),
        )
        for ids, offsets, question in zip(batch["input_ids"], batch["offset_mapping"], questions, strict=True)
    ]


def refuse_control_tokens(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], what: str) -> None:
    """A text that spells one of the tokenizer's control tokens would end a turn, or the prompt. `what` names it."""
    everything = "\0".join(texts)
    marks = sorted(added.content for added in tokenizer.added_tokens_decoder.values() if added.special)
    marks = [mark for mark in marks if mark in everything]
    for text in texts if marks else ():
        spelt = next((mark for mark in marks if mark in text), None)
        if spelt:
            raise ValueError(
                f"The {what} {shortened(text, 60)!r} holds {spelt!r}, a control token of the model's tokenizer; "
                f"take the {what} out of the dataset."
            )


def tokens_over(offsets: np.ndarray | list[tuple[int, int]], spans: list[Span]) -> list[int]:
    """Indices of the tokens that share at least one character with a span."""
    starts, ends = np.asarray(offsets).reshape(-1, 2).T
    over = np.zeros(len(starts), dtype=bool)
    for span in spans:
        over |= np.maximum(starts, span.start) < np.minimum(ends, span.end)
    return np.flatnonzero(over).tolist()


def decoded_offsets(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> tuple[str, list[tuple[int, int]]]:
    """The text of generated ids and the characters of each, without tokenising the text again.

    A token that ends inside a character of several bytes covers the whole character, and so does every token that
    completes it. Some tokenizers decode an incomplete run of bytes to replacement signs only, even the characters that
    are complete already; here those stay complete.
    """
    text = decode(tokenizer, ids)
    offsets = []
    start = 0
    for count in range(1, len(ids) + 1):
        so_far = decode(tokenizer, ids[:count])
        shared = max(start, _shared(text, so_far))
        inside_character = len(so_far) > shared  # the rest of it decodes to a replacement sign
        offsets.append((start, min(shared + inside_character, len(text))))
        start = shared
    return text, offsets


def decode(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> str:
    """The text of generated ids, without special tokens."""
    return cast(str, tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))


def _shared(text: str, other: str) -> int:
    limit = min(len(text), len(other))
    return next((index for index in range(limit) if text[index] != other[index]), limit)


@dataclass(frozen=True)
class ModelSettings:
    """How a job runs a model."""

    prompts: PromptSet
    dtype: str
    threads: int
    batch_tokens: int | None  # computed together; None for what suits the device
    code: str  # fingerprint

    @classmethod
    def of(cls, params: Any, manifest: Path | str, threads: int, **others: Any) -> Self:
        """From a rule's params, some of which are named as these settings are; `others` are a stage's own."""
        prompts = PromptSet.from_json(params.prompts, Manifest.read(manifest).prompt)
        shared = {name: getattr(params, name) for name in ("dtype", "batch_tokens", "code")}
        return cls(prompts=prompts, threads=threads, **shared, **others)

    def engine(self, model: Manifest) -> Engine:
        """The model in memory, on GPUs where there are any, and what runs it."""
        return Engine(load_model(model, self.dtype, self.threads), self.batch_tokens)

    def made(self, stage: str, model: Manifest, engine: Engine | None = None) -> dict[str, object]:
        """What the outputs of a stage say of how they were made; with an engine also on what."""
        computed = {} if engine is None else {"computed": computed_on(engine.model)}
        return {
            "stage": stage,
            "model": model.as_json(),
            "prompts": self.prompts.as_json(),
            "dtype": self.dtype,
            "code": self.code,
            **computed,
        }
