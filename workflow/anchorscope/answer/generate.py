"""Greedy answers, many at a time, after one shared prefix."""

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
from transformers.generation import StoppingCriteria, StoppingCriteriaList

from anchorscope.engine.attention import Past, compute_prefix, run_decoder
from anchorscope.engine.batches import default_tokens, out_of_memory, run_batches
from anchorscope.engine.packing import Pack, trunk
from anchorscope.engine.parts import decoder_of, input_device
from anchorscope.engine.scores import own_attention
from anchorscope.engine.self_check import choose_path

AGREEING = 0.7  # of the tried tokens; in half precision, two orders of summation do not always choose the same
TRIED = 8  # tokens


@torch.inference_mode()
def generate(
    model: PreTrainedModel,
    prompts: list[list[int]],
    shared: int,
    stops: Tensor,
    max_new_tokens: int,
    batch_tokens: int | None,
) -> list[list[int]]:
    """Greedy continuations of `prompts`, up to and including a stop token.

    The prompts have their first `shared` tokens in common. `stops` is boolean [vocabulary].
    """
    longest = max(prompts, key=len)
    path = choose_path(model, longest, shared)
    if path.name == "packed" and not _ends_in_embeddings(model, longest):
        path = path.plain("their head does more than multiply by the output embeddings")
    answers: list[list[int]] = [[] for _ in prompts]
    with path.running(model):
        if path.name == "packed":
            prefix = compute_prefix(model, prompts[0][:shared])
            suffixes = [prompt[shared:] for prompt in prompts]
            greedy = partial(_greedy, model, prefix, stops=stops, max_new_tokens=max_new_tokens)
        else:
            suffixes = prompts
            greedy = partial(_plain_greedy, _own_way(model, longest), stops=stops, max_new_tokens=max_new_tokens)

        def answer(batch: list[int]) -> None:
            for index, tokens in zip(batch, greedy([suffixes[index] for index in batch]), strict=True):
                answers[index] = tokens

        sizes = [len(suffix) + max_new_tokens for suffix in suffixes]
        run_batches(answer, sizes, batch_tokens or default_tokens(model), what="answering questions")
    return answers


@dataclass
class Continuation:
    """An answer in the making: where its tokens are in the pool, and which ones come next."""

    known: np.ndarray
    new: list[int]
    answer: list[int] = field(default_factory=list)


def _greedy(
    model: PreTrainedModel, prefix: Past, suffixes: list[list[int]], stops: Tensor, max_new_tokens: int
) -> list[list[int]]:
    """The answers of a batch. A continuation that has reached a stop token leaves the batch."""
    past = prefix.growing()
    continuations = [Continuation(np.arange(len(prefix)), suffix) for suffix in suffixes]
    going = continuations
    for _ in range(max_new_tokens):
        pack = Pack([trunk(one.known, one.new) for one in going], len(past))
        hidden = run_decoder(model, pack, past)  # [tokens, width]
        starts = [start for (start,) in pack.starts[: len(going)]]
        last = torch.tensor([start + len(one.new) - 1 for one, start in zip(going, starts, strict=True)])
        chosen = model.get_output_embeddings()(hidden[last.to(hidden.device)]).argmax(dim=-1)
        for one, start, token in zip(going, starts, chosen.tolist(), strict=True):
            one.known = np.append(one.known, pack.pool + start + np.arange(len(one.new)))
            one.new = [token]
            one.answer.append(token)
        stopped = stops.to(chosen.device)[chosen].tolist()
        going = [one for one, done in zip(going, stopped, strict=True) if not done]
        if not going:
            break
    return [one.answer for one in continuations]


def _ends_in_embeddings(model: PreTrainedModel, ids: list[int]) -> bool:
    """Whether the decoder's states times the output embeddings choose the tokens that the whole model chooses."""
    tokens = torch.tensor([ids[-TRIED:]], device=input_device(model))
    with own_attention(model, "eager"):
        whole = model(input_ids=tokens, use_cache=False).logits[0]
        states = decoder_of(model)(input_ids=tokens, use_cache=False).last_hidden_state[0]
    head = model.get_output_embeddings()
    if head is None or states.shape[-1] != head.weight.shape[-1]:
        return False
    return bool((head(states).argmax(dim=-1) == whole.argmax(dim=-1)).float().mean() > AGREEING)


Way = Callable[[Tensor, Tensor, int], Tensor]  # tokens [rows, length], stops, limit: new tokens [rows, at most limit]


def _own_way(model: PreTrainedModel, prompt: list[int]) -> Way:
    """The model's own generation, which keeps keys and values, where it says what the model says without them."""
    tokens = torch.tensor([prompt], device=input_device(model))
    never = torch.zeros(model.config.get_text_config().vocab_size, dtype=torch.bool, device=tokens.device)
    generated, recomputed = partial(_generated, model), partial(_recomputed, model)
    try:
        same = torch.equal(generated(tokens, never, TRIED), recomputed(tokens, never, TRIED))
    except (RuntimeError, TypeError, ValueError, AttributeError) as error:  # a model that cannot keep them
        if out_of_memory(error):
            raise
        same = False
    return generated if same else recomputed


def _plain_greedy(way: Way, prompts: list[list[int]], stops: Tensor, max_new_tokens: int) -> list[list[int]]:
    """The answers of a batch by the model's own code. Prompts of one length run together, without padding."""
    answers: dict[int, list[int]] = {}
    for length in dict.fromkeys(map(len, prompts)):
        mine = [index for index, prompt in enumerate(prompts) if len(prompt) == length]
        said = way(torch.tensor([prompts[index] for index in mine], device=stops.device), stops, max_new_tokens)
        for index, ids in zip(mine, said, strict=True):
            end = stops.to(ids.device)[ids].nonzero()
            answers[index] = ids[: int(end[0]) + 1 if len(end) else None].tolist()
    return [answers[index] for index in range(len(prompts))]


def _generated(model: PreTrainedModel, tokens: Tensor, stops: Tensor, max_new_tokens: int) -> Tensor:
    """[rows, new tokens] by the library's generation, up to where the last row has stopped."""
    with _greedy_config(model):
        said = cast(Any, model).generate(
            input_ids=tokens,
            attention_mask=torch.ones_like(tokens),
            max_new_tokens=max_new_tokens,
            stopping_criteria=StoppingCriteriaList([Stopped(stops)]),
        )
    return said[:, tokens.shape[1] :]


def _recomputed(model: PreTrainedModel, tokens: Tensor, stops: Tensor, max_new_tokens: int) -> Tensor:
    """The same, each token from the whole text before it."""
    text, stopped = tokens, torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
    for _ in range(max_new_tokens):
        new = model(input_ids=text, use_cache=False).logits[:, -1].argmax(dim=-1).to(text.device)
        text = torch.cat([text, new[:, None]], dim=1)
        stopped |= stops.to(new.device)[new]
        if stopped.all():
            break
    return text[:, tokens.shape[1] :]


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
