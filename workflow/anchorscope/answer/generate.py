"""Greedy answers, many at a time, after one shared prefix."""

import reprlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.generation import LogitsProcessor, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList

from anchorscope.engine.attention import Past, compute_prefix, run_decoder
from anchorscope.engine.batches import default_tokens, out_of_memory, run_batches
from anchorscope.engine.packing import Pack, trunk
from anchorscope.engine.parts import decoder_of, input_device
from anchorscope.engine.scores import own_attention
from anchorscope.engine.self_check import TOLERANCE, choose_path, relative_difference

TRIED = 8  # tokens


@dataclass
class Said:
    """An answer: its tokens, stop token included, and of each how sure the model was."""

    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)  # natural logarithm of the token's probability
    entropies: list[float] = field(default_factory=list)  # of the distribution that it was chosen from, in nats


class Chosen(NamedTuple):
    """Tokens of several answers with what `Said` has of each; all of one shape."""

    ids: Tensor
    logprobs: Tensor
    entropies: Tensor


def choose(logits: Tensor) -> Chosen:
    """The likeliest token of each row of logits [rows, vocabulary]."""
    chances = logits.float().softmax(dim=-1)
    ids = logits.argmax(dim=-1)
    return Chosen(ids, chances.gather(1, ids[:, None])[:, 0].log(), torch.special.entr(chances).sum(dim=-1))


@torch.inference_mode()
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
    longest = max(prompts, key=len)
    path = choose_path(model, longest, shared)
    head = _head_of(model, longest) if path.name == "packed" else None
    if path.name == "packed" and head is None:
        path = path.plain("their own code does not take the decoder's states alone")
    answers = [Said() for _ in prompts]
    with path.running(model):
        if head is not None:
            prefix = compute_prefix(model, prompts[0][:shared])
            suffixes = [prompt[shared:] for prompt in prompts]
            greedy = partial(_greedy, model, head, prefix, stops=stops, max_new_tokens=max_new_tokens)
        else:
            suffixes = prompts
            greedy = partial(_plain_greedy, _own_way(model, longest), stops=stops, max_new_tokens=max_new_tokens)

        def answer(batch: list[int]) -> None:
            for index, said in zip(batch, greedy([suffixes[index] for index in batch]), strict=True):
                answers[index] = said

        sizes = [len(suffix) + max_new_tokens for suffix in suffixes]
        run_batches(answer, sizes, batch_tokens or default_tokens(model), what="answering questions")
    return answers


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


def _head_of(model: PreTrainedModel, ids: list[int]) -> Head | None:
    """The model's head; None where its own code wants more than the decoder's states."""
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
    same = found.shape == whole.shape and relative_difference(found, whole, model.dtype) <= TOLERANCE[model.dtype]
    return head if same else None


@dataclass
class Continuation:
    """An answer in the making: where its tokens are in the pool, and which ones come next."""

    known: np.ndarray
    new: list[int]
    said: Said = field(default_factory=Said)


def _greedy(
    model: PreTrainedModel, head: Head, prefix: Past, suffixes: list[list[int]], stops: Tensor, max_new_tokens: int
) -> list[Said]:
    """The answers of a batch. A continuation that has reached a stop token leaves the batch."""
    past = prefix.growing()
    continuations = [Continuation(np.arange(len(prefix)), suffix) for suffix in suffixes]
    going = continuations
    for _ in range(max_new_tokens):
        pack = Pack([trunk(one.known, one.new) for one in going], len(past))
        hidden = run_decoder(model, pack, past)  # [tokens, width]
        starts = [start for (start,) in pack.starts[: len(going)]]
        last = torch.tensor([start + len(one.new) - 1 for one, start in zip(going, starts, strict=True)])
        chosen = choose(head(hidden[last.to(hidden.device)]))
        sure = torch.stack([chosen.logprobs, chosen.entropies], dim=1).tolist()
        for one, start, token, (logprob, entropy) in zip(going, starts, chosen.ids.tolist(), sure, strict=True):
            one.known = np.append(one.known, pack.pool + start + np.arange(len(one.new)))
            one.new = [token]
            one.said.ids.append(token)
            one.said.logprobs.append(logprob)
            one.said.entropies.append(entropy)
        stopped = stops.to(chosen.ids.device)[chosen.ids].tolist()
        going = [one for one, done in zip(going, stopped, strict=True) if not done]
        if not going:
            break
    return [one.said for one in continuations]


Way = Callable[[Tensor, Tensor, int], Chosen]  # tokens [rows, length], stops, limit: new tokens [rows, at most limit]


def _own_way(model: PreTrainedModel, prompt: list[int]) -> Way:
    """The model's own generation, which keeps keys and values, where it says what the model says without them."""
    tokens = torch.tensor([prompt], device=input_device(model))
    never = torch.zeros(model.config.get_text_config().vocab_size, dtype=torch.bool, device=tokens.device)
    generated, recomputed = partial(_generated, model), partial(_recomputed, model)
    try:
        same = torch.equal(generated(tokens, never, TRIED).ids, recomputed(tokens, never, TRIED).ids)
    except (RuntimeError, TypeError, ValueError, AttributeError) as error:  # a model that cannot keep them
        if out_of_memory(error):
            raise
        same = False
    return generated if same else recomputed


def _plain_greedy(way: Way, prompts: list[list[int]], stops: Tensor, max_new_tokens: int) -> list[Said]:
    """The answers of a batch by the model's own code. Prompts of one length run together, without padding."""
    answers: dict[int, Said] = {}
    for length in dict.fromkeys(map(len, prompts)):
        mine = [index for index, prompt in enumerate(prompts) if len(prompt) == length]
        chosen = way(torch.tensor([prompts[index] for index in mine], device=stops.device), stops, max_new_tokens)
        ends = stops.to(chosen.ids.device)[chosen.ids]  # [rows, tokens]
        for index, end, *row in zip(mine, ends, *chosen, strict=True):
            count = int(end.int().argmax()) + 1 if end.any() else len(end)
            answers[index] = Said(*(part[:count].tolist() for part in row))
    return [answers[index] for index in range(len(prompts))]


def _generated(model: PreTrainedModel, tokens: Tensor, stops: Tensor, max_new_tokens: int) -> Chosen:
    """[rows, new tokens] by the library's generation, up to where the last row has stopped."""
    watch = Watch()
    with _greedy_config(model):
        cast(Any, model).generate(
            input_ids=tokens,
            attention_mask=torch.ones_like(tokens),
            max_new_tokens=max_new_tokens,
            logits_processor=LogitsProcessorList([watch]),
            stopping_criteria=StoppingCriteriaList([Stopped(stops)]),
        )
    return _side_by_side(watch.seen)


def _recomputed(model: PreTrainedModel, tokens: Tensor, stops: Tensor, max_new_tokens: int) -> Chosen:
    """The same, each token from the whole text before it."""
    text, stopped = tokens, torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
    seen: list[Chosen] = []
    for _ in range(max_new_tokens):
        seen.append(choose(model(input_ids=text, use_cache=False).logits[:, -1]))
        new = seen[-1].ids.to(text.device)
        text = torch.cat([text, new[:, None]], dim=1)
        stopped |= stops.to(new.device)[new]
        if stopped.all():
            break
    return _side_by_side(seen)


def _side_by_side(steps: list[Chosen]) -> Chosen:
    return Chosen(*(torch.stack(parts, dim=1) for parts in zip(*steps, strict=True)))


class Watch(LogitsProcessor):
    """Sees what the library's generation chooses from, and changes nothing."""

    def __init__(self) -> None:
        self.seen: list[Chosen] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.seen.append(choose(scores))
        return scores


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
