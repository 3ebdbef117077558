"""What may attend to what, and the shared prefix that is computed once.

One boolean mask serves padding, causality, sliding windows and knockout alike, in generation and
in extraction.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

# The key position of a pad: later than any query, so that none ever sees it.
NOWHERE = 2**30


@dataclass(frozen=True)
class Prefix:
    """Keys and values of tokens that many rows share, one pair a layer, each [1, heads, tokens, head_width]."""

    keys: list[Tensor]
    values: list[Tensor]

    def __len__(self) -> int:
        return self.keys[0].shape[2] if self.keys else 0

    def cache(self, rows: int, length: int) -> DynamicCache:
        """A cache of the first `length` prefix tokens for `rows` rows. It keeps every token, windows or not."""
        cache = DynamicCache()
        if length:
            for layer, (keys, values) in enumerate(zip(self.keys, self.values, strict=True)):
                shape = (rows, -1, -1, -1)
                cache.update(keys[:, :, :length].expand(shape), values[:, :, :length].expand(shape), layer)
        return cache


def compute_prefix(model: PreTrainedModel, ids: list[int]) -> Prefix:
    """Run the shared tokens once, alone."""
    if not ids:
        return Prefix([], [])
    tokens = torch.tensor([ids], device=model.device)
    positions = torch.arange(len(ids), device=model.device)[None]
    cache = DynamicCache()
    run_decoder(model, tokens, positions, positions, None, cache)
    return Prefix([layer.keys for layer in cache.layers], [layer.values for layer in cache.layers])


def run_decoder(
    model: PreTrainedModel,
    tokens: Tensor,  # [rows, queries]
    query_positions: Tensor,  # [rows, queries]
    key_positions: Tensor,  # [rows, keys], cached ones first
    cut: Tensor | None,  # [rows, keys], True where a key is knocked out
    cache: DynamicCache,
) -> Tensor:
    """The decoder's last hidden state [rows, queries, width], without the language-model head."""
    masks = {
        kind: _for_model(model, allowed(query_positions, key_positions, cut, window))
        for kind, window in _windows(model).items()
    }
    by_layer_type = getattr(model.config.get_text_config(), "layer_types", None) is not None
    return model.get_decoder()(
        input_ids=tokens,
        attention_mask=masks if by_layer_type else next(iter(masks.values())),
        position_ids=query_positions,
        past_key_values=cache,
        use_cache=True,
    ).last_hidden_state


def allowed(query_positions: Tensor, key_positions: Tensor, cut: Tensor | None, window: int | None) -> Tensor:
    """Which query may see which key, boolean [rows, 1, queries, keys].

    A knocked-out key is hidden from every later query that is not itself knocked out.
    """
    query = query_positions[:, :, None]
    key = key_positions[:, None, :]
    mask = key <= query
    if window is not None:
        mask &= query - key < window
    if cut is not None:
        cut_query = cut[:, -query_positions.shape[1] :]  # queries are the last keys
        mask &= ~(cut[:, None, :] & ~cut_query[:, :, None])
    return mask[:, None]


def _windows(model: PreTrainedModel) -> dict[str, int | None]:
    """The attention window of each kind of layer; None sees everything."""
    config = model.config.get_text_config()
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    if kinds is None:
        return {"full_attention": window}
    unknown = set(kinds) - {"full_attention", "sliding_attention"}
    if unknown:
        raise ValueError(f"Layers of type {', '.join(sorted(unknown))} are not supported ({config.model_type}).")
    return {kind: window if kind == "sliding_attention" else None for kind in sorted(set(kinds))}


def _for_model(model: PreTrainedModel, mask: Tensor) -> Tensor:
    """SDPA takes the boolean mask; eager attention adds its mask to the scores."""
    if model.config._attn_implementation != "eager":
        return mask
    return torch.zeros_like(mask, dtype=model.dtype).masked_fill(~mask, torch.finfo(model.dtype).min)
