"""Continuations of prompts, greedy or sampled, many at a time; what prompts begin with alike is computed once."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel
from transformers.generation import LogitsProcessorList, StoppingCriteriaList

from anchorscope.engine.attention_mask import own_attention
from anchorscope.engine.batches import out_of_memory
from anchorscope.engine.packing import Pack, trunk
from anchorscope.engine.packs import Openings, Past, run_decoder
from anchorscope.engine.parts import decoder_of, input_device, swapped
from anchorscope.engine.self_check import EnginePath
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


# Of logits [rows, vocabulary] and how many tokens their answers have already: the tokens [rows] that come next.
Pick = Callable[..., Chosen]


def choose_tokens(uniforms: Tensor | None, logits: Tensor, answers: list[int], step: int) -> Chosen:
    """The likeliest tokens; with uniform numbers [answers, tokens], tokens with the probabilities that the model gives.

    `answers` says which answer of the batch each row is of.
    """
    chances = logits.float().softmax(dim=-1)
    if uniforms is None:
        ids = logits.argmax(dim=-1)
    else:
        # Float64, because the sum of a large vocabulary's probabilities would lose the smallest ones.
        reached = chances.double().cumsum(dim=-1)
        wanted = uniforms[answers, step].to(reached.device) * reached[:, -1]
        ids = torch.searchsorted(reached, wanted[:, None], right=True)[:, 0].clamp(max=logits.shape[-1] - 1)
    return Chosen(ids, chances.gather(1, ids[:, None])[:, 0].log(), torch.special.entr(chances).sum(dim=-1))


Head = Callable[[Tensor], Tensor]  # logits [rows, vocabulary] of a decoder's states [rows, width]


def _own_head(model: PreTrainedModel, output: type, states: Tensor) -> Tensor:
    """What a model's own code makes of its decoder's states, which the decoder gives as an `output`.

    For some models that is more than a product with the output embeddings: a cap, or a scale.
    """
    tokens = torch.zeros(1, len(states), dtype=torch.int64, device=input_device(model))
    given = output(last_hidden_state=states[None])
    with swapped(decoder_of(model), "forward", lambda *args, **others: given):
        return model(input_ids=tokens, use_cache=False).logits[0]


def find_head(path: EnginePath, model: PreTrainedModel, ids: list[int]) -> Head | None:
    """The model's head, tried on one sequence; None where its own code wants more than the decoder's states."""
    tokens = torch.tensor([ids[-TRIED:]], device=input_device(model))
    with own_attention(model, "eager"):
        whole = model(input_ids=tokens, use_cache=False).logits[0]
        output = decoder_of(model)(input_ids=tokens, use_cache=False)
        head = partial(_own_head, model, type(output))
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
        pick = partial(choose_tokens, None if work.uniforms is None else work.uniforms[batch].flatten(0, 1))
        said = self._plain(batch, pick) if self.head is None else self._packed(batch, pick, self.head)
        return [said[place * copies : (place + 1) * copies] for place in range(len(batch))]

    def _packed(self, batch: list[int], pick: Pick, head: Head) -> list[Said]:
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
            chosen = pick(logits, answers=going, step=step)
            for number, *token in zip(going, *(part.tolist() for part in chosen), strict=True):
                continuations[number].new = token[:1]
                continuations[number].told.append(token)
            stopped = work.stops.to(chosen.ids.device)[chosen.ids].tolist()
            going = [number for number, done in zip(going, stopped, strict=True) if not done]
            if not going:
                break
        return [Said(*map(list, zip(*one.told, strict=True))) for one in continuations]

    def _plain(self, batch: list[int], pick: Pick) -> list[Said]:
        """By the model's own code. Prompts of one length run together, without padding."""
        work = self.work
        rows = [work.prompts[index] for index in batch for _ in range(work.copies)]
        answers: dict[int, Said] = {}
        for length in dict.fromkeys(map(len, rows)):
            mine = [index for index, row in enumerate(rows) if len(row) == length]
            tokens = torch.tensor([rows[index] for index in mine], device=work.stops.device)
            chosen = self.way(tokens, work.stops, work.max_new_tokens, partial(pick, answers=mine))
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
    told: list[list] = field(default_factory=list)  # of each token that it has, what `Said` has of one


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
Way = Callable[[Tensor, Tensor, int, Pick], Chosen]


def _own_way(model: PreTrainedModel, prompt: list[int]) -> Way:
    """The model's own generation, which keeps keys and values, where it says what the model says without them."""
    tokens = torch.tensor([prompt], device=input_device(model))
    never = torch.zeros(model.config.get_text_config().vocab_size, dtype=torch.bool, device=tokens.device)
    generated, recomputed = partial(_generated, model), partial(_recomputed, model)
    pick = partial(choose_tokens, None, answers=[0])
    try:
        same = torch.equal(*(way(tokens, never, TRIED, pick).ids for way in (generated, recomputed)))
    except (RuntimeError, TypeError, ValueError, AttributeError) as error:  # a model that cannot keep them
        if out_of_memory(error):
            raise
        same = False
    return generated if same else recomputed


def _generated(model: PreTrainedModel, tokens: Tensor, stops: Tensor, max_new_tokens: int, pick: Pick) -> Chosen:
    """[rows, new tokens] by the library's generation, up to where the last row has stopped.

    It is left no other token than the one that is picked, and is greedy, whatever the model's own settings ask for.
    """
    picked: list[Chosen] = []

    def only_picked(input_ids: Tensor, scores: Tensor) -> Tensor:
        picked.append(pick(scores, step=len(picked)))
        return torch.full_like(scores, -torch.inf).scatter(1, picked[-1].ids[:, None], 0.0)

    def stopped(input_ids: Tensor, scores: Tensor, **others: object) -> Tensor:
        return stops.to(input_ids.device)[input_ids[:, -1]]

    with swapped(model, "generation_config", GenerationConfig(pad_token_id=0, do_sample=False)):
        cast(Any, model).generate(
            input_ids=tokens,
            attention_mask=torch.ones_like(tokens),
            max_new_tokens=max_new_tokens,
            logits_processor=LogitsProcessorList([only_picked]),
            stopping_criteria=StoppingCriteriaList([stopped]),
        )
    return _side_by_side(picked)


def _recomputed(model: PreTrainedModel, tokens: Tensor, stops: Tensor, max_new_tokens: int, pick: Pick) -> Chosen:
    """The same, each token from the whole text before it."""
    text, stopped = tokens, torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
    picked: list[Chosen] = []
    for step in range(max_new_tokens):
        logits = model(input_ids=text, use_cache=False).logits[:, -1]
        picked.append(pick(logits, step=step))
        new = picked[-1].ids.to(text.device)
        text = torch.cat([text, new[:, None]], dim=1)
        stopped |= stops.to(new.device)[new]
        if stopped.all():
            break
    return _side_by_side(picked)


def _side_by_side(steps: list[Chosen]) -> Chosen:
    return Chosen(*(torch.stack(parts, dim=1) for parts in zip(*steps, strict=True)))
