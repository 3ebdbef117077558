"""Answers that are given as texts: in tokens after their question's prompt, as the model would have written them."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from tokenizers import Encoding
from transformers import PreTrainedTokenizerBase

from anchorscope.answer.prompts import Prompt, refuse_control_tokens, tokens_over
from anchorscope.extract.sequences import place_of
from anchorscope.text.grading import label

Item = TypeVar("Item")
Made = TypeVar("Made")
PORTION = 2048  # answers that are tokenised at once; while a GPU runs them, the next are


@dataclass(frozen=True, slots=True)
class Given:
    """A question and its answer in tokens."""

    question: str
    answer: str  # its first line, with the space that the prompt leaves to it
    ids: list[int]  # of prompt and answer
    first: int  # the answer's first token
    offsets: list[tuple[int, int]]  # the characters of `answer` that each of its tokens covers

    def token_at(self, position: str) -> int | None:
        """The number of the token at a position; None for an empty answer or a refusal."""
        exact = label(self.answer, gold=[], question=self.question).exact
        over = tokens_over(self.offsets, [exact]) if exact else []
        if not over:  # or the tokenizer has no token for these characters
            return None
        ends = {"exact_first": over[0], "exact_last": over[-1], "answer_final": len(self.offsets) - 1}
        return self.first + place_of(position, ends)


@dataclass(frozen=True)
class Answered:
    """Some of the answers that are scored."""

    numbers: list[int]  # among all
    given: list[Given]


def tokenise(
    tokenizer: PreTrainedTokenizerBase, prompt: Prompt, questions: Sequence[str], answers: Sequence[str]
) -> Iterator[Answered]:
    """Every answer after its prompt, in tokens, a portion at a time; the longest first."""
    refuse_control_tokens(tokenizer, questions, "question")
    refuse_control_tokens(tokenizer, answers, "answer")
    space = "" if prompt.after[-1:].isspace() else " "  # models begin an answer with a space where the prompt has none
    lines = [answer.strip().split("\n", 1)[0].rstrip() for answer in answers]
    said = [f"{space}{line}" if line else "" for line in lines]
    order = sorted(range(len(said)), key=lambda number: -len(questions[number]) - len(said[number]))
    portions = [order[start : start + PORTION] for start in range(0, len(order), PORTION)]

    def encode(numbers: list[int]) -> list[Encoding]:
        # As a call of the tokenizer does it, without the lists that such a call makes of all characters.
        texts = [f"{prompt.before}{questions[number]}{prompt.after}{said[number]}" for number in numbers]
        return tokenizer.backend_tokenizer.encode_batch(texts, add_special_tokens=prompt.special_tokens)

    for numbers, encodings in zip(portions, _one_ahead(encode, portions), strict=True):
        given = [
            _given(tokenizer, prompt, questions[number], said[number], encoding)
            for number, encoding in zip(numbers, encodings, strict=True)
        ]
        yield Answered(numbers, given)


def _one_ahead(make: Callable[[Item], Made], items: Sequence[Item]) -> Iterator[Made]:
    """What is made of each item; while one is in use, a thread makes the next."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        coming = [thread.submit(make, item) for item in items[:1]]
        for item in items[1:]:
            coming.append(thread.submit(make, item))
            yield coming.pop(0).result()
        yield from (one.result() for one in coming)


def _given(tokenizer: PreTrainedTokenizerBase, prompt: Prompt, question: str, said: str, encoding: Encoding) -> Given:
    """An answer of which all tokens are known."""
    before = f"{prompt.before}{question}{prompt.after}"
    ids = encoding.ids
    first, offsets = _answer_tokens(encoding, len(ids), after=len(before))
    if offsets and offsets[0][0] < 0:
        return _apart(tokenizer, prompt, before, question, said)
    return Given(question, said, ids[: first + len(offsets)], first, offsets)


def _answer_tokens(encoding: Encoding, count: int, after: int) -> tuple[int, list[tuple[int, int]]]:
    """The first of the last tokens, which cover characters from `after` on, and the characters of each, from there.

    One by one from the end: a list of all characters would take longer than all the rest.
    """
    offsets: list[tuple[int, int]] = []
    first = count
    for index in reversed(range(count)):
        characters = encoding.token_to_chars(index)  # None for a token that the tokenizer adds
        if characters is not None and characters[1] <= after:
            break
        if characters is not None:
            first = index
            offsets.append((characters[0] - after, characters[1] - after))
    return first, offsets[::-1]


def _apart(tokenizer: PreTrainedTokenizerBase, prompt: Prompt, text: str, question: str, said: str) -> Given:
    """Where a token would cover the end of the prompt and the beginning of the answer: each is tokenised on its own.

    A model that answers cannot take back the prompt's last token.
    """
    backend = tokenizer.backend_tokenizer
    before = backend.encode(text, add_special_tokens=prompt.special_tokens).ids
    after = backend.encode(said, add_special_tokens=False)
    return Given(question, said, before + after.ids, first=len(before), offsets=after.offsets)
