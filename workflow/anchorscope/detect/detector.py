"""A detector to take away: probes of every layer, and all that is needed to use them on the same model elsewhere.

Answers are given as texts. They are put in tokens after their question's prompt, as the model would have written them.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from weakref import WeakKeyDictionary

import numpy as np
import torch
from tokenizers import Encoding
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from anchorscope.answer.prompts import Prompt, PromptSet, refuse_control_tokens, tokens_over
from anchorscope.detect.detector_file import About, DetectorProbes, read_detector
from anchorscope.engine.door import Engine, Tried
from anchorscope.engine.work import Variant, Work
from anchorscope.extract.sequences import place_of
from anchorscope.extract.store import DTYPES
from anchorscope.files.arguments import check_texts, check_whole
from anchorscope.files.logs import log, meter
from anchorscope.models.manifest import tokenizer_hash
from anchorscope.probe.scores import each
from anchorscope.text.grading import label
from anchorscope.text.normal_words import tidy

FEW_TOKENS = 1000  # that run sooner one answer at a time than the engine is tried out
PORTION = 2048  # answers that are tokenised at once; while a GPU runs them, the next are

# Logits [tokens] of all tokens of some answers, wherever they were computed, and which of them are asked for: places
# among these tokens, by the number of the answer; without empty answers and refusals.
Batch = tuple[Tensor, dict[int, int]]


@dataclass(frozen=True, slots=True)
class Given:
    """A question and its answer in tokens."""

    number: int  # among all answers that are scored
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


def tokenise(
    tokenizer: PreTrainedTokenizerBase, prompt: Prompt, questions: Sequence[str], answers: Sequence[str]
) -> Iterator[list[Given]]:
    """Every answer after its prompt, in tokens, a portion at a time; the longest first."""
    refuse_control_tokens(tokenizer, questions, "question")
    refuse_control_tokens(tokenizer, answers, "answer")
    lines = [answer.strip().split("\n", 1)[0].rstrip() for answer in answers]
    said = [f"{prompt.space}{line}" if line else "" for line in lines]
    order = sorted(range(len(said)), key=lambda number: -len(questions[number]) - len(said[number]))
    portions = [order[start : start + PORTION] for start in range(0, len(order), PORTION)]

    def encode(numbers: list[int]) -> list[Encoding]:
        # As a call of the tokenizer does it, without the lists that such a call makes of all characters.
        texts = [f"{prompt.before}{questions[number]}{prompt.after}{said[number]}" for number in numbers]
        return tokenizer.backend_tokenizer.encode_batch(texts, add_special_tokens=prompt.special_tokens)

    for numbers, encodings in zip(portions, _one_ahead(encode, portions), strict=True):
        yield [
            _given(tokenizer, prompt, number, questions[number], said[number], encoding)
            for number, encoding in zip(numbers, encodings, strict=True)
        ]


def _one_ahead(make: Callable[[list[int]], list[Encoding]], portions: Sequence[list[int]]) -> Iterator[list[Encoding]]:
    """What is made of each portion; while one is in use, a thread makes the next."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        coming = [thread.submit(make, portion) for portion in portions[:1]]
        for portion in portions[1:]:
            coming.append(thread.submit(make, portion))
            yield coming.pop(0).result()
        yield from (one.result() for one in coming)


def _given(
    tokenizer: PreTrainedTokenizerBase, prompt: Prompt, number: int, question: str, said: str, encoding: Encoding
) -> Given:
    """An answer of which all tokens are known.

    Where a token would cover the end of the prompt and the beginning of the answer, each is tokenised on its own: a
    model that answers cannot take back the prompt's last token.
    """
    text = f"{prompt.before}{question}{prompt.after}"
    first, offsets = _answer_tokens(encoding, after=len(text))
    if not offsets or offsets[0][0] >= 0:
        return Given(number, question, said, encoding.ids[: first + len(offsets)], first, offsets)
    backend = tokenizer.backend_tokenizer
    before = backend.encode(text, add_special_tokens=prompt.special_tokens).ids
    after = backend.encode(said, add_special_tokens=False)
    return Given(number, question, said, before + after.ids, first=len(before), offsets=after.offsets)


def _answer_tokens(encoding: Encoding, after: int) -> tuple[int, list[tuple[int, int]]]:
    """The first of the last tokens, which cover characters from `after` on, and the characters of each, from there.

    One by one from the end: a list of all characters would take longer than all the rest.
    """
    offsets: list[tuple[int, int]] = []
    first = len(encoding)
    for index in reversed(range(len(encoding))):
        characters = encoding.token_to_chars(index)  # None for a token that the tokenizer adds
        if characters is not None and characters[1] <= after:
            break
        if characters is not None:
            first = index
            offsets.append((characters[0] - after, characters[1] - after))
    return first, offsets[::-1]


@dataclass(frozen=True, repr=False)
class Detector:
    """Tells how likely an answer of one model is hallucinated, from the model's states while it reads that answer."""

    probes: DetectorProbes
    about: About
    # How models are run, each tried out once: the trial takes longer than to score a few answers.
    tried: WeakKeyDictionary[PreTrainedModel, Tried] = field(default_factory=WeakKeyDictionary, compare=False)

    def __repr__(self) -> str:
        about = self.about
        return f"Detector for {about.model}: layer {about.layer}, {about.component} at {about.position}"

    def score(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        questions: Sequence[str],
        answers: Sequence[str],
        *,
        batch_tokens: int | None = None,
        layer: int | None = None,
    ) -> np.ndarray:
        """The probability that each answer is hallucinated, [answers]; NaN for an empty answer or a refusal.

        Each answer is the whole reply to the question of the same number; its first line is read. It is taken as given:
        the detector learnt from greedy answers of the model itself, and what it says of any other text was not
        measured. Half of its examples were hallucinated, so a probability supposes that half of the answers are.
        `batch_tokens` are computed together, by default as many as suit the device. `layer` reads another layer than
        the one that told best.
        """
        check_texts("questions", questions)
        check_texts("answers", answers)
        if batch_tokens is not None:
            check_whole("batch_tokens", batch_tokens, least=1)
        if len(questions) != len(answers):
            raise ValueError(f"There are {len(questions)} questions and {len(answers)} answers; each answer needs one.")
        questions = [tidy(question) for question in questions]
        if "" in questions:
            raise ValueError(f"Question {questions.index('') + 1} is empty.")
        self._check(model, tokenizer)
        if layer is not None:
            check_whole("layer", layer, least=0, most=len(self.probes.weight) - 1)
        log.info("answers are taken as given; the detector learnt from greedy answers of %s itself", self.about.model)
        (prompt,) = PromptSet(self.about.style, {"first": self.about.prompt}).built(tokenizer).values()
        engine = Engine(model, batch_tokens, self.tried.get(model))
        portions = tokenise(tokenizer, prompt, questions, answers)
        read = self.about.layer if layer is None else layer
        with meter(len(answers), "scoring answers") as count:
            done = [batch for given in portions for batch in self._run(engine, given, read, count)]
        if engine.tried:
            self.tried[model] = engine.tried
        return torch.sigmoid(_logits(done, answers).double()).numpy()

    def _run(self, engine: Engine, given: list[Given], layer: int, count: Callable[[int], None]) -> list[Batch]:
        """The batches of a portion. One layer is read while the model reads answers; later layers are not run."""
        made: list[Batch] = []
        # The answer, and the token before it.
        items = [[[Variant(np.array(one.ids), read=[*range(one.first - 1, len(one.ids))])]] for one in given]

        @torch.inference_mode()
        def take(batch: list[int], blocks: list[Tensor]) -> None:
            states, some = blocks[0][0], [given[index] for index in batch]
            probe = each(self.probes, lambda tensor: tensor[layer : layer + 1].to(states.device))
            logits = probe.logits(states)[0]
            # Nothing has waited for these yet: while a GPU computes them, the token of each answer is looked for.
            tokens = [one.token_at(self.about.position) for one in some]
            ends = np.cumsum([len(one.ids) - one.first + 1 for one in some]).tolist()
            places = {
                one.number: end - len(one.ids) + token
                for one, token, end in zip(some, tokens, ends, strict=True)
                if token is not None
            }
            made.append((logits, places))
            count(len(batch))

        work = Work(items, [self.about.component], [layer], by_item=True)
        few = engine.tried is None and sum(len(one.ids) for one in given) <= FEW_TOKENS
        (engine.states_alone if few else engine.states)(work, take)
        return made

    def _check(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        """Refuse another model than the one that the detector was trained on, as far as that can be seen."""
        config = model.config.get_text_config()
        layers, width = self.probes.weight.shape
        needed = {"model_type": self.about.architecture, "num_hidden_layers": layers, "hidden_size": width}
        for name, value in needed.items():
            if getattr(config, name) != value:
                raise ValueError(
                    f"The detector is for {self.about.model}, whose {name} is {value}, but this model's is "
                    f"{getattr(config, name)}; use the model that it was trained on."
                )
        dtype = dtype_of(model)
        if self.about.dtype not in ("auto", dtype):
            log.warning("the detector learnt from %s; in %s probabilities differ a little", self.about.dtype, dtype)
        if not tokenizer.is_fast:
            raise ValueError("The tokenizer has no offset mapping; load the fast one, which has a tokenizer.json.")
        tokenizer("x")  # so that it forgets the padding and truncation of earlier calls
        found = tokenizer_hash(tokenizer)
        if found != self.about.tokenizer:
            raise ValueError(
                f"The detector is for {self.about.model} with the tokenizer {self.about.tokenizer}, but this tokenizer "
                f"is {found}; use the one that the run used."
            )


def _logits(done: list[Batch], answers: Sequence[str]) -> Tensor:
    """Logits [answers] in the machine's own memory; NaN for an empty answer or a refusal."""
    logits = torch.full((len(answers),), torch.nan)
    for found, places in done:
        logits[list(places)] = found.cpu()[list(places.values())]
    read = {number for _, places in done for number in places}
    for number in (~logits.isfinite()).nonzero().flatten().tolist():
        if number in read:
            raise ValueError(
                f"The states of answer {number + 1}, {answers[number].strip()!r}, are not finite; load the model "
                "in bfloat16 or float32."
            )
    if len(read) < len(answers):
        unread = len(answers) - len(read)
        log.warning("%d of %d answers are empty or refusals and get no score", unread, len(answers))
    return logits


def dtype_of(model: PreTrainedModel) -> str:
    """What a model computes in; a dtype whose states cannot be kept is refused."""
    dtype = str(model.dtype).removeprefix("torch.")
    if dtype not in DTYPES:
        raise ValueError(f"The model computes in {dtype}; load it with one of {', '.join(DTYPES)}.")
    return dtype


def load_detector(path: Path | str) -> Detector:
    """The detector in a file such as results/detectors/{model}.safetensors."""
    return Detector(*read_detector(path))
