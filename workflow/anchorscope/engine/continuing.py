"""Continuations of prompts, greedy or sampled, many at a time; what prompts begin with alike is computed once."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel
from transformers.generation import LogitsProcessor, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList

from anchorscope.engine.attention import Past, run_decoder
from anchorscope.engine.batches import out_of_memory
from anchorscope.engine.packing import Pack, trunk
from anchorscope.engine.packs import Openings
from anchorscope.engine.parts import decoder_of, input_device
from anchorscope.engine.scores import own_attention
from anchorscope.engine.self_check import Path
from anchorscope.engine.work import Prompts, Said

# Most samples have no more tokens than these. A batch is planned for them, not for the longest that there can be: its
# last passes compute a few rows each, and take nearly as long as full ones.
SHORT = 8
TRIED = 8  # tokens


class Chosen(NamedTuple):
    """Tokens of several answers with what `Said` has of each; all of one shape."""

    ids: Tensor
    logprobs: Tensor
    entropies: Tensor


class Choice(Protocol):
    """How the next tokens are chosen."""

    def __call__(self, logits: Tensor, answers: Sequence[int], step: int) -> Tensor:
        """The tokens [rows] that come next, of logits [rows, vocabulary].

        `answers` says which answer of the batch each row is of, and `step` how many tokens it has already.
        """
        ...


def likeliest(logits: Tensor, answers: Sequence[int], step: int) -> Tensor:
    """Greedy decoding."""
    return logits.argmax(dim=-1)


class Draws:
    """Chooses tokens with the probabilities that the model gives them: by uniform numbers [answers, tokens]."""

    def __init__(self, uniforms: Tensor):
        self.uniforms = uniforms

    def __call__(self, logits: Tensor, answers: Sequence[int], step: int) -> Tensor:
        # Float64, because the sum of a large vocabulary's probabilities would lose the smallest ones.
        reached = logits.float().softmax(dim=-1).double().cumsum(dim=-1)
        wanted = self.uniforms[list(answers), step].to(reached.device) * reached[:, -1]
        drawn = torch.searchsorted(reached, wanted[:, None], right=True)[:, 0]
        return drawn.clamp(max=logits.shape[-1] - 1)


def with_sureness(logits: Tensor, ids: Tensor) -> Chosen:
    """The tokens `ids` [rows], chosen from logits [rows, vocabulary], and how sure the model was of each."""
    chances = logits.float().softmax(dim=-1)
    return Chosen(ids, chances.gather(1, ids[:, None])[:, 0].log(), torch.special.entr(chances).sum(dim=-1))


class Head:
    """What a model's own code makes of its decoder's states.

    For some models that is more than a product with the output embeddings: a cap, or a scale.
    """

    def __init__(self, model: PreTrainedModel, output: type):
        self.model, self.output = model, output  # the kind of output that the decoder gives

    def __call__(self, states: Tensor) -> Tensor:
        """Logits [rows, vocabulary] of states [rows, width]."""
        decoder: Any = decoder_of(self.model)
        own = vars(decoder).get("forward")  # a model on several cards has one
        decoder.forward = lambda *args, **others: self.output(last_hidden_state=states[None])
        try:
            tokens = torch.zeros(1, len(states), dtype=torch.int64, device=input_device(self.model))
            return self.model(input_ids=tokens, use_cache=False).logits[0]
        finally:
            del decoder.forward
            if own is not None:
                decoder.forward = own


def find_head(path: Path, model: PreTrainedModel, ids: list[int]) -> Head | None:
    """The model's head, tried on one sequence; None where its own code wants more than the decoder's states."""
    tokens = torch.tensor([ids[-TRIED:]], device=input_device(model))
    with own_attention(model, "eager"):
        whole = model(input_ids=tokens, use_cache=False).logits[0]
        output = decoder_of(model)(input_ids=tokens, use_cache=False)
        head = Head(model, type(output))
        try:
            found = head(output.last_hidden_state[0])
        except (RuntimeError, TypeError, ValueError, AttributeError) as error:
            if out_of_memory(error):
                raise
            return None
    return head if found.shape == whole.shape and path.same(found, whole) else None


class Continuing:
    """A model that is ready to continue prompts. The tokens of a prompt are computed once for all of its samples."""

    def __init__(self, model: PreTrainedModel, head: Head | None, work: Prompts):
        """Without a head, the model's own code continues them."""
        self.model, self.head, self.work = model, head, work
        self.known: list[np.ndarray] = []
        if head is None:
            self.way = _own_way(model, max(work.prompts, key=len))
        else:
            begun = [np.array(prompt[:-1]) for prompt in work.prompts]
            self.openings = Openings(model, begun)
            self.known = [self.openings.known(ids) for ids in begun]

    def sizes(self) -> list[int]:
        """How many tokens each prompt adds to a batch."""
        work, lengths = self.work, map(len, self.work.prompts)
        new = work.max_new_tokens if work.uniforms is None else work.copies * min(SHORT, work.max_new_tokens)
        if self.head is None:
            return [work.copies * length + new for length in lengths]
        return [length - len(known) + new for length, known in zip(lengths, self.known, strict=True)]

    def run(self, batch: list[int]) -> list[list[Said]]:
        """The continuations of some prompts."""
        work, copies = self.work, self.work.copies
        choice: Choice = likeliest if work.uniforms is None else Draws(work.uniforms[batch].flatten(0, 1))
        said = self._plain(batch, choice) if self.head is None else self._packed(batch, choice, self.head)
        return [said[place * copies : (place + 1) * copies] for place in range(len(batch))]

    def _packed(self, batch: list[int], choice: Choice, head: Head) -> list[Said]:
        """A continuation that has reached a stop token leaves the batch.

        The first pass computes what is not known of the prompts. The continuations of each then share its places in the
        pool.
        """
        work, past = self.work, self.openings.past.growing()
        asked = [Continuation(self.known[index], work.prompts[index][len(self.known[index]) :]) for index in batch]
        logits = _advance(self.model, head, asked, past).repeat_interleave(work.copies, dim=0)
        continuations = [Continuation(one.known, []) for one in asked for _ in range(work.copies)]
        going = list(range(len(continuations)))
        for step in range(work.max_new_tokens):
            if step:
                logits = _advance(self.model, head, [continuations[number] for number in going], past)
            chosen = with_sureness(logits, choice(logits, answers=going, step=step))
            for number, *token in zip(going, *(part.tolist() for part in chosen), strict=True):
                continuations[number].add(*token)
            stopped = work.stops.to(chosen.ids.device)[chosen.ids].tolist()
            going = [number for number, done in zip(going, stopped, strict=True) if not done]
            if not going:
                break
        return [one.said for one in continuations]

    def _plain(self, batch: list[int], choice: Choice) -> list[Said]:
        """By the model's own code. Prompts of one length run together, without padding."""
        work = self.work
        rows = [work.prompts[index] for index in batch for _ in range(work.copies)]
        answers: dict[int, Said] = {}
        for length in dict.fromkeys(map(len, rows)):
            mine = [index for index, row in enumerate(rows) if len(row) == length]
            tokens = torch.tensor([rows[index] for index in mine], device=work.stops.device)
            chosen = self.way(tokens, work.stops, work.max_new_tokens, partial(choice, answers=mine))
            ends = work.stops.to(chosen.ids.device)[chosen.ids]  # [rows, tokens]
            for index, end, *row in zip(mine, ends, *chosen, strict=True):
                count = int(end.int().argmax()) + 1 if end.any() else len(end)
                answers[index] = Said(*(part[:count].tolist() for part in row))
        return [answers[index] for index in range(len(rows))]


@dataclass
class Continuation:
    """An answer in the making: where its tokens are in the pool, and which ones come next."""

    known: np.ndarray
    new: list[int]
    said: Said = field(default_factory=Said)

    def add(self, token: int, logprob: float, entropy: float) -> None:
        self.new = [token]
        self.said.ids.append(token)
        self.said.logprobs.append(logprob)
        self.said.entropies.append(entropy)


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
