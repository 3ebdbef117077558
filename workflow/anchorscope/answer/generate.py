"""Answers, greedy or sampled, many at a time; what prompts begin with alike is computed once."""

import reprlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.generation import LogitsProcessor, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList

from anchorscope.answer.choices import Choice, Chosen, Draws, likeliest, with_sureness
from anchorscope.answer.head import TRIED, Head, choose_way
from anchorscope.engine.attention import Past, run_decoder
from anchorscope.engine.batches import default_tokens, out_of_memory, run_batches
from anchorscope.engine.openings import Openings
from anchorscope.engine.packing import Pack, trunk
from anchorscope.engine.parts import input_device

# Most samples have no more tokens than these. A batch is planned for them, not for the longest that there can be: its
# last passes compute a few rows each, and take nearly as long as full ones.
SHORT = 8


@dataclass
class Said:
    """An answer: its tokens, stop token included, and of each how sure the model was."""

    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)  # natural logarithm of the token's probability
    entropies: list[float] = field(default_factory=list)  # of the distribution that it was chosen from, in nats


def generate(
    model: PreTrainedModel,
    prompts: list[list[int]],
    shared: int,
    stops: Tensor,
    max_new_tokens: int,
    batch_tokens: int | None,
) -> list[Said]:
    """Greedy continuations of `prompts`, up to and including a stop token.

    The prompts have their first `shared` tokens in common. `stops` is boolean [vocabulary].
    """
    work = _Work(prompts, shared=shared, stops=stops, max_new_tokens=max_new_tokens, uniforms=None)
    return [said for (said,) in _continued(model, work, batch_tokens, what="answering questions")]


def sample(
    model: PreTrainedModel,
    prompts: list[list[int]],
    uniforms: Tensor,
    shared: int,
    stops: Tensor,
    batch_tokens: int | None,
) -> list[list[Said]]:
    """Several continuations of each prompt at temperature 1, up to and including a stop token.

    Each token is drawn by a number of its own in `uniforms` [prompts, samples, tokens], which are at least 0 and below
    1. The tokens of a prompt are computed once for all of its samples.
    """
    work = _Work(prompts, shared=shared, stops=stops, max_new_tokens=uniforms.shape[2], uniforms=uniforms)
    return _continued(model, work, batch_tokens, what="drawing samples")


@dataclass(frozen=True)
class _Work:
    """Prompts, and how they are continued."""

    prompts: list[list[int]]
    shared: int  # how many leading tokens they have in common
    stops: Tensor
    max_new_tokens: int
    uniforms: Tensor | None  # [prompts, samples, tokens]; None for one greedy continuation of each

    @property
    def copies(self) -> int:
        """How many continuations each prompt has."""
        return 1 if self.uniforms is None else self.uniforms.shape[1]

    @property
    def counted(self) -> int:
        """How many new tokens of a prompt's continuations count towards the size of a batch."""
        return self.max_new_tokens if self.uniforms is None else self.copies * min(SHORT, self.max_new_tokens)

    def choice(self, batch: list[int]) -> Choice:
        """How the tokens of these prompts' continuations are chosen; those of one prompt follow one another."""
        return likeliest if self.uniforms is None else Draws(self.uniforms[batch].flatten(0, 1))


@torch.inference_mode()
def _continued(model: PreTrainedModel, work: _Work, batch_tokens: int | None, what: str) -> list[list[Said]]:
    """Every continuation of every prompt. `what` names the work in the log."""
    longest = max(work.prompts, key=len)
    path, head = choose_way(model, longest, work.shared)
    answers: list[list[Said]] = [[] for _ in work.prompts]
    with path.running(model):
        if head is not None:
            openings = Openings(model, [prompt[:-1] for prompt in work.prompts], work.shared)
            computed = [len(prompt) - len(openings.known(prompt[:-1])) for prompt in work.prompts]
            run = partial(_packed, model, head, openings)
        else:
            computed = [work.copies * len(prompt) for prompt in work.prompts]
            run = partial(_plain, _own_way(model, longest))

        def answer(batch: list[int]) -> None:
            said = run([work.prompts[index] for index in batch], work, work.choice(batch))
            for place, index in enumerate(batch):
                answers[index] = said[place * work.copies : (place + 1) * work.copies]

        sizes = [tokens + work.counted for tokens in computed]
        run_batches(answer, sizes, batch_tokens or default_tokens(model), what=what)
    return answers


@dataclass
class Continuation:
    """An answer in the making: where its tokens are in the pool, and which ones come next."""

    known: np.ndarray
    new: list[int]
    said: Said = field(default_factory=Said)


def _packed(
    model: PreTrainedModel, head: Head, openings: Openings, prompts: list[list[int]], work: _Work, choice: Choice
) -> list[Said]:
    """The answers of a batch. A continuation that has reached a stop token leaves the batch.

    The first pass computes what is not known of the prompts. The continuations of each then share its places in the
    pool.
    """
    past = openings.past.growing()
    known = [openings.known(prompt[:-1]) for prompt in prompts]
    asked = [Continuation(places, prompt[len(places) :]) for places, prompt in zip(known, prompts, strict=True)]
    logits = _advance(model, head, asked, past).repeat_interleave(work.copies, dim=0)
    continuations = [Continuation(one.known, []) for one in asked for _ in range(work.copies)]
    going = list(range(len(continuations)))
    for step in range(work.max_new_tokens):
        if step:
            logits = _advance(model, head, [continuations[number] for number in going], past)
        chosen = with_sureness(logits, choice(logits, answers=going, step=step))
        sure = torch.stack([chosen.logprobs, chosen.entropies], dim=1).tolist()
        for number, token, (logprob, entropy) in zip(going, chosen.ids.tolist(), sure, strict=True):
            one = continuations[number]
            one.new = [token]
            one.said.ids.append(token)
            one.said.logprobs.append(logprob)
            one.said.entropies.append(entropy)
        stopped = work.stops.to(chosen.ids.device)[chosen.ids].tolist()
        going = [number for number, done in zip(going, stopped, strict=True) if not done]
        if not going:
            break
    return [one.said for one in continuations]


def _advance(model: PreTrainedModel, head: Head, going: list[Continuation], past: Past) -> Tensor:
    """Compute the new tokens of some continuations, from then on known: logits [continuations, vocabulary]."""
    pack = Pack([trunk(one.known, one.new) for one in going], len(past))
    hidden = run_decoder(model, pack, past)  # [tokens, width]
    starts = [start for (start,) in pack.starts[: len(going)]]
    last = torch.tensor([start + len(one.new) - 1 for one, start in zip(going, starts, strict=True)])
    for one, start in zip(going, starts, strict=True):
        one.known = np.append(one.known, pack.pool + start + np.arange(len(one.new)))
    return head(hidden[last.to(hidden.device)])


# Of tokens [rows, length], stops, the limit, and a choice for all rows: new tokens [rows, at most the limit].
Way = Callable[[Tensor, Tensor, int, Callable[..., Tensor]], Chosen]


def _own_way(model: PreTrainedModel, prompt: list[int]) -> Way:
    """The model's own generation, which keeps keys and values, where it says what the model says without them."""
    tokens = torch.tensor([prompt], device=input_device(model))
    never = torch.zeros(model.config.get_text_config().vocab_size, dtype=torch.bool, device=tokens.device)
    generated, recomputed = partial(_generated, model), partial(_recomputed, model)
    pick = partial(likeliest, answers=[0])
    try:
        same = torch.equal(*(way(tokens, never, TRIED, pick).ids for way in (generated, recomputed)))
    except (RuntimeError, TypeError, ValueError, AttributeError) as error:  # a model that cannot keep them
        if out_of_memory(error):
            raise
        same = False
    return generated if same else recomputed


def _plain(way: Way, prompts: list[list[int]], work: _Work, choice: Choice) -> list[Said]:
    """The answers of a batch by the model's own code. Prompts of one length run together, without padding."""
    rows = [prompt for prompt in prompts for _ in range(work.copies)]
    answers: dict[int, Said] = {}
    for length in dict.fromkeys(map(len, rows)):
        mine = [index for index, row in enumerate(rows) if len(row) == length]
        tokens = torch.tensor([rows[index] for index in mine], device=work.stops.device)
        chosen = way(tokens, work.stops, work.max_new_tokens, partial(choice, answers=mine))
        ends = work.stops.to(chosen.ids.device)[chosen.ids]  # [rows, tokens]
        for index, end, *row in zip(mine, ends, *chosen, strict=True):
            count = int(end.int().argmax()) + 1 if end.any() else len(end)
            answers[index] = Said(*(part[:count].tolist() for part in row))
    return [answers[index] for index in range(len(rows))]


def _generated(
    model: PreTrainedModel, tokens: Tensor, stops: Tensor, max_new_tokens: int, pick: Callable[..., Tensor]
) -> Chosen:
    """[rows, new tokens] by the library's generation, up to where the last row has stopped."""
    picker = Picker(pick)
    with _greedy_config(model):
        cast(Any, model).generate(
            input_ids=tokens,
            attention_mask=torch.ones_like(tokens),
            max_new_tokens=max_new_tokens,
            logits_processor=LogitsProcessorList([picker]),
            stopping_criteria=StoppingCriteriaList([Stopped(stops)]),
        )
    return _side_by_side(picker.picked)


def _recomputed(
    model: PreTrainedModel, tokens: Tensor, stops: Tensor, max_new_tokens: int, pick: Callable[..., Tensor]
) -> Chosen:
    """The same, each token from the whole text before it."""
    text, stopped = tokens, torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
    picked: list[Chosen] = []
    for step in range(max_new_tokens):
        logits = model(input_ids=text, use_cache=False).logits[:, -1]
        picked.append(with_sureness(logits, pick(logits, step=step)))
        new = picked[-1].ids.to(text.device)
        text = torch.cat([text, new[:, None]], dim=1)
        stopped |= stops.to(new.device)[new]
        if stopped.all():
            break
    return _side_by_side(picked)


def _side_by_side(steps: list[Chosen]) -> Chosen:
    return Chosen(*(torch.stack(parts, dim=1) for parts in zip(*steps, strict=True)))


class Picker(LogitsProcessor):
    """Leaves the library's generation no other token than the one that it picks."""

    def __init__(self, pick: Callable[..., Tensor]):
        self.pick = pick
        self.picked: list[Chosen] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        ids = self.pick(scores, step=len(self.picked))
        self.picked.append(with_sureness(scores, ids))
        return torch.full_like(scores, -torch.inf).scatter(1, ids[:, None], 0.0)


class Stopped(StoppingCriteria):
    """A row is done at its first stop token."""

    def __init__(self, stops: Tensor):
        self.stops = stops

    def __call__(self, input_ids: Tensor, scores: Tensor, **others: object) -> Tensor:
        return self.stops.to(input_ids.device)[input_ids[:, -1]]


@contextmanager
def _greedy_config(model: PreTrainedModel) -> Iterator[None]:
    """Generation as it is by default, greedy, in place of the model's own settings, which may ask for sampling."""
    own = model.generation_config
    model.generation_config = GenerationConfig(pad_token_id=0, do_sample=False)
    try:
        yield
    finally:
        model.generation_config = own


def answer_ends(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The tokens that end an answer: the tokenizer's end of text, and every token whose text has a newline."""
    texts = tokenizer.batch_decode([[token] for token in range(len(tokenizer))])
    ends = [index for index, text in enumerate(texts) if "\n" in text]
    return ends if tokenizer.eos_token_id is None else [*ends, tokenizer.eos_token_id]


def stop_tokens(model: PreTrainedModel, ends: list[int]) -> Tensor:
    """Boolean [vocabulary]: `ends`, and the tokens that end a text by the model's own settings."""
    size = model.get_output_embeddings().weight.shape[0]
    own = model.generation_config.eos_token_id
    stops = torch.zeros(size, dtype=torch.bool)
    for end in [*ends, *(own if isinstance(own, list) else [own])]:
        if end is not None and type(end) is not int:
            raise ValueError(
                f"eos_token_id in the model's generation_config.json is {reprlib.repr(own)}, not a token's number."
            )
        if end is not None and 0 <= end < size:  # some configs say -1 for none, or a token beyond the vocabulary
            stops[end] = True
    return stops.to(model.device)
