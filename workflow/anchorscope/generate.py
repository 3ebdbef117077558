"""Greedy answers, many at a time, on top of one shared prefix."""

from collections.abc import Iterator

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from anchorscope.attention import NOWHERE, Prefix, compute_prefix, run_decoder
from anchorscope.batches import plan_batches
from anchorscope.logs import progress


@torch.inference_mode()
def generate(
    model: PreTrainedModel,
    prompts: list[list[int]],
    shared: int,
    stops: Tensor,
    max_new_tokens: int,
    batch_tokens: int,
) -> list[list[int]]:
    """Greedy continuations of `prompts`, whose first `shared` tokens are equal, up to and with a stop token.

    `stops` is boolean [vocabulary].
    """
    prefix = compute_prefix(model, prompts[0][:shared])
    suffixes = [prompt[shared:] for prompt in prompts]
    lengths = [len(suffix) + max_new_tokens for suffix in suffixes]
    plan = plan_batches(lengths, [1] * len(prompts), batch_tokens)
    answers: list[list[int]] = [[] for _ in prompts]
    for batch in progress(plan, len(prompts), "answering questions", weight=len):
        for row, token in _greedy(model, prefix, [suffixes[index] for index in batch], stops, max_new_tokens):
            answers[batch[row]].append(token)
    return answers


def _greedy(
    model: PreTrainedModel, prefix: Prefix, suffixes: list[list[int]], stops: Tensor, max_new_tokens: int
) -> Iterator[tuple[int, int]]:
    """Yield (row, token) for each generated token of a batch; finished rows leave it."""
    device = model.device
    lengths = torch.tensor([len(suffix) for suffix in suffixes], device=device)
    tokens = _right_padded(suffixes).to(device)
    rows = torch.arange(len(suffixes), device=device)
    cache = prefix.cache(len(suffixes), len(prefix))
    past = torch.arange(len(prefix), device=device).expand(len(suffixes), -1)
    queries = len(prefix) + torch.arange(tokens.shape[1], device=device).expand_as(tokens)
    keys = torch.cat([past, queries.masked_fill(queries >= len(prefix) + lengths[:, None], NOWHERE)], dim=1)
    last = lengths - 1  # index of each row's last real token among the queries

    for step in range(max_new_tokens):
        hidden = run_decoder(model, tokens, queries, keys, None, cache)
        final = hidden[torch.arange(len(rows), device=device), last]  # [rows, width]
        chosen = model.get_output_embeddings()(final).argmax(dim=-1)
        yield from zip(rows.tolist(), chosen.tolist(), strict=True)
        going = ~stops[chosen]
        if step + 1 == max_new_tokens or not going.any():
            return
        if not going.all():
            rows, chosen, lengths, keys = rows[going], chosen[going], lengths[going], keys[going]
            cache.batch_select_indices(going.nonzero().squeeze(1))
        tokens = chosen[:, None]
        queries = (len(prefix) + lengths + step)[:, None]
        keys = torch.cat([keys, queries], dim=1)
        last = torch.zeros_like(chosen)


def _right_padded(rows: list[list[int]]) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [0] * (longest - len(row)) for row in rows])


def stop_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Tensor:
    """Boolean [vocabulary]: end-of-text tokens, and every token whose text has a newline."""
    size = model.get_output_embeddings().weight.shape[0]
    texts = tokenizer.batch_decode([[token] for token in range(min(size, len(tokenizer)))])
    ends = model.generation_config.eos_token_id
    stops = torch.zeros(size, dtype=torch.bool)
    stops[[index for index, text in enumerate(texts) if "\n" in text]] = True
    for end in [tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends])]:
        if end is not None and end < size:  # a config may name a token that its model cannot say
            stops[end] = True
    return stops.to(model.device)
