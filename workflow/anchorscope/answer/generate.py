"""Greedy answers, many at a time, after one shared prefix."""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from anchorscope.engine.attention import Past, compute_prefix, packed_attention, run_decoder
from anchorscope.engine.batches import default_tokens, run_batches
from anchorscope.engine.packing import Pack, trunk
from anchorscope.engine.self_check import check_packed


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
    suffixes = [prompt[shared:] for prompt in prompts]
    sizes = [len(suffix) + max_new_tokens for suffix in suffixes]
    answers: list[list[int]] = [[] for _ in prompts]

    def answer(batch: list[int]) -> None:
        asked = [suffixes[index] for index in batch]
        said = _greedy(model, prefix, asked, stops=stops, max_new_tokens=max_new_tokens)
        for index, tokens in zip(batch, said, strict=True):
            answers[index] = tokens

    check_packed(model, prompts[0], shared)
    with packed_attention(model):
        prefix = compute_prefix(model, prompts[0][:shared])
        budget = batch_tokens or default_tokens(model)
        run_batches(answer, sizes, budget, what="answering questions")
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
            raise ValueError(f"eos_token_id in the model's generation_config.json is {own!r}, not a token's number.")
        if end is not None and 0 <= end < size:  # some configs say -1 for none, or a token beyond the vocabulary
            stops[end] = True
    return stops.to(model.device)
