"""Continuations of prompts, greedy or sampled, many at a time; what prompts begin with alike is computed once."""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel
from transformers.generation import LogitsProcessorList, StoppingCriteriaList

from anchorscope.engine.attention_mask import own_attention
from anchorscope.engine.batches import out_of_memory
from anchorscope.engine.packing import Pack, trunk
from anchorscope.engine.packs import Openings, run_decoder
from anchorscope.engine.parts import decoder_of, hooked, input_device, swapped
from anchorscope.engine.self_check import EnginePath
from anchorscope.engine.steps import Arrive, Chosen, Head, Steps, choose_tokens, room_for
from anchorscope.engine.work import Prompts, Said

# A batch is planned by tokens. A prompt counts for so many at least, and each of several samples for so many: a step of
# all answers is then worth a pass, and most batches have as many answers, so that they share graphs. Every answer has
# slots for all of its prompt that others do not share: of these, so many count for a token, so that memory is bounded.
PROMPT_TOKENS, SAMPLE_TOKENS, SLOTS_OF_TOKEN = 16, 8, 4
TRIED = 8  # tokens

# Of logits [rows, vocabulary], which answer of the batch each row is of, and the number of the token: those [rows] that
# come next.
Pick = Callable[..., Chosen]


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
    decoded: list[Any] = []
    watched = decoder_of(model).register_forward_hook(lambda module, args, output: decoded.append(output))
    with own_attention(model, "eager"):
        with hooked([watched]):
            whole = model(input_ids=tokens, use_cache=False).logits[0]
        try:
            (output,) = decoded
            head = partial(_own_head, model, type(output))
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
        if head is None:
            self.way = _own_way(model, max(work.prompts, key=len))
        else:
            self.openings = Openings(model, [prompt[:-1] for prompt in work.prompts])
            self.steps = Steps(model, head, draws=work.uniforms is not None)
            self.stops = work.stops.cpu().numpy()
            # A GPU computes the next step while the host looks at the tokens of the last. An answer that these end is
            # then computed for one token more, for which a processor does not have the time.
            self.ahead = self.steps.graphs

    def sizes(self, batch_tokens: int) -> list[int]:
        """How many tokens each prompt adds to a batch of so many: at least its share of the memory for slots."""
        copies, lengths = self.work.copies, [len(prompt) for prompt in self.work.prompts]
        if self.head is None:
            return [copies * (length + SAMPLE_TOKENS) for length in lengths]
        prefix, room = len(self.openings.prefix), self.steps.places_for(self.openings.past)
        own = [length - prefix for length in lengths]
        return [
            max(
                length - len(known),
                PROMPT_TOKENS,
                copies * max(SAMPLE_TOKENS, tokens // SLOTS_OF_TOKEN, int(room_for(tokens) * batch_tokens / room)),
            )
            for length, tokens, known in zip(lengths, own, self.openings.known, strict=True)
        ]

    def run(self, batch: list[int]) -> list[list[Said]]:
        """The continuations of some prompts."""
        copies, uniforms = self.work.copies, self.work.uniforms
        drawn = None if uniforms is None else uniforms[batch].flatten(0, 1)  # [answers, tokens]

        def pick(logits: Tensor, answers: list[int], step: int) -> Chosen:
            return choose_tokens(logits, None if drawn is None else drawn[answers, step])

        said = self._plain(batch, pick) if self.head is None else self._packed(batch, drawn, self.head)
        return [said[place * copies : (place + 1) * copies] for place in range(len(batch))]

    def _packed(self, batch: list[int], drawn: Tensor | None, head: Head) -> list[Said]:
        """Step by step; an answer that has reached a stop token does not go on."""
        answers = _Answers(len(batch) * self.work.copies, self.work.max_new_tokens, self.stops)
        try:
            new = np.arange(answers.count), self._first(batch, drawn, head).arriving()
            for step in range(1, answers.most):
                if not self.ahead:
                    answers.take(*new)
                following = self._next(answers, new[0], None if drawn is None else drawn[:, step])
                if self.ahead:
                    answers.take(*new)
                if following is None:
                    return answers.said()
                new = following
            answers.take(*new)
        except BaseException:
            self.steps.forget()  # so that a smaller batch has the memory
            raise
        return answers.said()

    def _next(self, answers: "_Answers", rows: np.ndarray, drawn: Tensor | None) -> tuple[np.ndarray, Arrive] | None:
        """Those of the last step's answers that go on, as far as is known, and their next tokens, on their way."""
        going = np.flatnonzero(~answers.ended[rows])
        if not len(going):
            return None
        return rows[going], self.steps.next(going, None if drawn is None else drawn[rows[going]]).arriving()

    def _first(self, batch: list[int], drawn: Tensor | None, head: Head) -> Chosen:
        """The first tokens of the answers. What is not known of the prompts is computed, once for all their answers."""
        work, past, prefix = self.work, self.openings.past.growing(), len(self.openings.prefix)
        known = [self.openings.known[index] for index in batch]
        new = [work.prompts[index][len(own) :] for index, own in zip(batch, known, strict=True)]
        pack = Pack([trunk(*both) for both in zip(known, new, strict=True)], len(past))
        hidden = run_decoder(self.model, pack, past)  # [tokens, width]
        starts = np.array([start for (start,) in pack.starts[: len(batch)]])
        lasts = torch.from_numpy(starts + [len(ids) - 1 for ids in new])
        logits = head(hidden[lasts.to(hidden.device)]).repeat_interleave(work.copies, dim=0)
        chosen = choose_tokens(logits, None if drawn is None else drawn[:, 0])
        lengths = np.array([len(work.prompts[index]) - prefix for index in batch])
        places = np.zeros((len(batch), lengths.max()), np.int64)
        for row, own, start, ids in zip(places, known, starts, new, strict=True):
            row[: len(own) - prefix] = own[prefix:]
            row[len(own) - prefix :][: len(ids)] = pack.pool + start + np.arange(len(ids))
        each = np.arange(len(batch)).repeat(work.copies)
        self.steps.begin(past, prefix, places[each], lengths[each], chosen.ids)
        return chosen

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


class _Answers:
    """What is known of the answers of a batch."""

    def __init__(self, count: int, most: int, stops: np.ndarray):
        self.count, self.most, self.stops = count, most, stops
        self.parts = [np.zeros((count, most), dtype) for dtype in (np.int64, np.float32, np.float32)]  # as of `Chosen`
        self.lengths, self.ended = np.zeros(count, np.int64), np.zeros(count, bool)

    def take(self, rows: np.ndarray, arrive: Arrive) -> None:
        """The next tokens of some answers, when they have arrived. Those of answers that had ended mean nothing."""
        new, own = arrive(), ~self.ended[rows]
        going = rows[own]
        for known, part in zip(self.parts, new, strict=True):
            known[going, self.lengths[going]] = part[own]
        self.lengths[going] += 1
        self.ended[going] = self.stops[new[0][own]]

    def said(self) -> list[Said]:
        return [Said(*(part[row, :length].tolist() for part in self.parts)) for row, length in enumerate(self.lengths)]


# Of tokens [rows, length], stops, the limit, and a choice for all rows: new tokens [rows, at most the limit].
Way = Callable[[Tensor, Tensor, int, Pick], Chosen]


def _own_way(model: PreTrainedModel, prompt: list[int]) -> Way:
    """The model's own generation, which keeps keys and values, where it says what the model says without them."""
    tokens = torch.tensor([prompt], device=input_device(model))
    never = torch.zeros(model.config.get_text_config().vocab_size, dtype=torch.bool, device=tokens.device)
    generated, recomputed = partial(_generated, model), partial(_recomputed, model)

    def pick(logits: Tensor, step: int) -> Chosen:
        return choose_tokens(logits, None)

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
