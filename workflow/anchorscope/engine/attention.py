"""Attention over a pack of trees, and the prefix that is computed once for all of them.

Registered with transformers as an attention implementation, so that every model that takes one can use it: the model's
own code makes queries, keys and values, and this module decides which token sees which.
"""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface, PreTrainedModel

from anchorscope.engine.fused import fused
from anchorscope.engine.packing import Pack, Padded, Placed, to_device, trunk
from anchorscope.engine.parts import decoder_of, ending_after, input_device
from anchorscope.engine.scores import attending_by

NAME = "anchorscope"
# Newer versions of torch want to be told that there are fewer heads of keys than of queries.
GROUPED: dict[str, Any] = {"enable_gqa": True} if "enable_gqa" in inspect.signature(varlen_attn).parameters else {}
RAGGED_DTYPES = (torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Past:
    """Tokens that were computed before: for each layer the pools of keys and values, [tokens, heads, head_width]."""

    pools: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    grows: bool = False  # whether the tokens of a forward pass stay in the pools

    def growing(self) -> "Past":
        """Pools that begin with these tokens and can take more."""
        return Past(dict(self.pools), grows=True)

    def __len__(self) -> int:
        return len(next(iter(self.pools.values()), ((),))[0])

    def extended(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """The pools of a layer, with the tokens of this pass at their end."""
        if layer in self.pools:
            keys, values = (torch.cat(both) for both in zip(self.pools[layer], (keys, values), strict=True))
        if self.grows:
            self.pools[layer] = keys, values
        return keys, values


def attend(
    module: nn.Module,
    query: Tensor,  # [1, heads, tokens, head_width]
    key: Tensor,  # [1, key_value_heads, tokens, head_width]
    value: Tensor,
    attention_mask: None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    *,
    pack: Pack,
    past: Past,
    **kwargs: object,
) -> tuple[Tensor, None]:
    """Attention of every packed token over its branch, [1, tokens, heads, head_width]."""
    query, key, value = (tensor.squeeze(0).transpose(0, 1) for tensor in (query, key, value))
    keys, values = past.extended(cast(int, module.layer_idx), key, value)
    placed = pack.on(query.device)
    sliding = sliding_window if sliding_window is not None and sliding_window < pack.longest else None
    plain = sliding is None and softcap is None and not pack.biased
    if query.is_cuda and query.dtype in RAGGED_DTYPES and plain:
        out = _ragged(query, keys, values, placed=placed, scaling=scaling)
    else:
        added = query.dtype if pack.biased else None
        parts = [
            _padded(query, keys, values, group, mask=group.mask(sliding, added), scaling=scaling, softcap=softcap)
            for group in placed.padded
        ]
        out = torch.cat(parts).index_select(0, placed.back)
    return out[None], None


AttentionInterface.register(NAME, attend)


@contextmanager
def packed_attention(model: PreTrainedModel) -> Iterator[None]:
    """Let the model run packs while the block runs."""
    with attending_by(model, NAME), fused(model):
        yield


def _ragged(query: Tensor, keys: Tensor, values: Tensor, placed: Placed, scaling: float | None) -> Tensor:
    """Each branch as a causal sequence of its own length. A branch's queries are the last of its keys."""
    ragged = placed.ragged
    keys, values = (pool.index_select(0, ragged.key_places) for pool in (keys, values))
    bounds = (ragged.query_bounds, ragged.key_bounds, ragged.most_queries, ragged.most_keys)
    out = varlen_attn(query, keys, values, *bounds, scale=scaling, window_size=(-1, 0), **GROUPED)
    return cast(Tensor, out)


def _padded(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    group: Padded,
    mask: Tensor,
    scaling: float | None,
    softcap: float | None,
) -> Tensor:
    """Each tree of a group as a sequence, under a mask: boolean, or added to the scores.

    [trees x padded tokens, heads, head_width]
    """
    trees, shared = len(group.trees), query.shape[1] // keys.shape[1]
    query, keys, values = (
        states.index_select(0, places.flatten()).unflatten(0, (trees, -1)).transpose(1, 2)
        for states, places in ((query, group.queries[0]), (keys, group.keys[0]), (values, group.keys[0]))
    )
    # On a GPU, the fused kernels take a mask only if there are as many heads of keys as of queries.
    if query.is_cuda or softcap is not None:
        keys, values = keys.repeat_interleave(shared, dim=1), values.repeat_interleave(shared, dim=1)
    if softcap is None:
        out = F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=scaling, enable_gqa=True)
    else:
        scale = cast(float, scaling)  # models that cap their scores give one
        scores = softcap * torch.tanh(query @ keys.transpose(2, 3) * scale / softcap)
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
        out = scores.float().softmax(dim=-1).to(values.dtype) @ values
    return out.transpose(1, 2).flatten(0, 1)


def run_decoder(model: PreTrainedModel, pack: Pack, past: Past) -> Tensor:
    """The decoder's last hidden state [tokens, width], without the language-model head."""
    device = input_device(model)
    tokens, positions = (to_device(array, device)[None] for array in (pack.tokens, pack.positions))
    output = decoder_of(model)(input_ids=tokens, position_ids=positions, use_cache=False, pack=pack, past=past)
    return output.last_hidden_state[0, : pack.size]


def compute_prefix(model: PreTrainedModel, ids: Sequence[int] | np.ndarray, last: nn.Module | None = None) -> Past:
    """Run the tokens that all sequences have in common once, on their own; with `last`, no further than that module."""
    return extended_past(model, Pack([trunk([], ids)], 0), Past(), last) if len(ids) else Past()


def extended_past(model: PreTrainedModel, pack: Pack, past: Past, last: nn.Module | None = None) -> Past:
    """The pool with the tokens of a pack at its end."""
    more, size = past.growing(), len(past) + pack.size
    with ending_after(last):
        run_decoder(model, pack, more)
    return Past({layer: (keys[:size], values[:size]) for layer, (keys, values) in more.pools.items()})
