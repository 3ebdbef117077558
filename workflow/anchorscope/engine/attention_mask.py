"""Which keys a query sees in a model's own attention, and how strongly: masks and biases on its scores."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel

# What makes weights of scores; the last two give the sum of weights, which some attention sinks are weighed against.
SOFTMAXES = (torch.softmax, Tensor.softmax, F.softmax, torch.logsumexp, Tensor.logsumexp)


class AttentionScores(TorchFunctionMode):
    """While the block runs, meets every attention of `rows` sequences of `queries` tokens, and hides or favours keys.

    Attention is a softmax over scores [rows, heads, queries, keys] or [rows x heads, queries, keys], or torch's own
    function for the whole of it. A column after the keys, an attention sink, is left alone.
    """

    def __init__(
        self,
        rows: int,
        queries: int,
        bias: Tensor | None = None,
        met: Callable[[Any, Tensor], None] = lambda func, made: None,
    ):
        """`bias` is added to the scores, float [rows, 1 or heads, queries, keys].

        `met` is told of every attention: the function that was called, and what it made.
        """
        super().__init__()
        self.rows, self.queries, self.met, self._bias = rows, queries, met, bias
        self._hidden: Tensor | None = None
        self._masks: dict[tuple, tuple[Tensor, Tensor | None]] = {}

    def hide(self, hidden: Tensor | None) -> None:
        """From now on, hide these keys from these queries: boolean [rows, 1, queries, keys]."""
        if hidden is not self._hidden:
            self._hidden = hidden
            self._masks.clear()

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if func in SOFTMAXES and args and self._are_scores(args[0]):
            made = func(self._changed(args[0]), *args[1:], **kwargs)
        elif func is F.scaled_dot_product_attention and self._are_queries(*args, **kwargs):
            made = self._attend(*args, **kwargs)
        else:
            return func(*args, **kwargs)
        self.met(func, made)
        return made

    def _are_scores(self, scores: Tensor) -> bool:
        if scores.dim() not in (3, 4) or scores.shape[-2] != self.queries or scores.shape[-1] < self.queries:
            return False
        rows = len(scores)
        return rows == self.rows if scores.dim() == 4 else rows > self.rows and rows % self.rows == 0

    def _are_queries(self, query: Tensor, key: Tensor, *others: Any, **more: Any) -> bool:
        return len(query) == self.rows and query.shape[-2] == key.shape[-2] == self.queries

    def _changed(self, scores: Tensor) -> Tensor:
        """The scores with the bias, and without what is hidden."""
        if self._bias is not None:
            scores = scores + self._shaped(self._bias, scores).to(scores.dtype)
        if self._hidden is not None:
            scores = scores.masked_fill(self._shaped(self._hidden, scores), -torch.inf)
        return scores

    def _shaped(self, change: Tensor, scores: Tensor) -> Tensor:
        """What is changed [rows, 1 or heads, queries, keys], in the scores' shape; nothing beside the keys."""
        beside = scores.shape[-1] - self.queries
        if beside > 1:
            raise ValueError(f"its attention sees {beside} states beside those of tokens, which may hold what is cut")
        change = F.pad(change.to(scores.device), (0, beside))
        if scores.dim() == 3:
            change = change.expand(-1, len(scores) // self.rows, -1, -1).flatten(0, 1)
        return change

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        if self._hidden is None and self._bias is None:
            mask = attn_mask
        else:
            mask, is_causal = self._mask(attn_mask, is_causal, query), False
            if enable_gqa and query.is_cuda:  # with a mask, fused kernels want as many heads of keys as of queries
                groups = query.shape[-3] // key.shape[-3]
                key, value = key.repeat_interleave(groups, dim=-3), value.repeat_interleave(groups, dim=-3)
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
        )

    def _mask(self, given: Tensor | None, is_causal: bool, query: Tensor) -> Tensor:
        """The mask that the model gives, with keys hidden or favoured as well. Layers that share a mask share it."""
        about = (id(given), is_causal, query.device, query.dtype)
        if about not in self._masks:
            everything = torch.ones(self.queries, self.queries, dtype=torch.bool, device=query.device)
            mask = everything if given is None else given
            if given is None and is_causal:
                mask = everything.tril()
            if self._hidden is not None:
                hidden = self._hidden.to(query.device)
                mask = mask & ~hidden if mask.dtype == torch.bool else mask.masked_fill(hidden, -torch.inf)
            if self._bias is not None:
                bias = self._bias.to(query)
                mask = bias.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else mask + bias
            self._masks[about] = mask, given  # which is kept, so that no other tensor gets its id
        return self._masks[about][0]


def own_attention(model: PreTrainedModel, implementation: str) -> AbstractContextManager[None]:
    """Let the model run the named one of its own attention codes while the block runs, where it can be told to."""
    if implementation == "sdpa" and getattr(model.config.get_text_config(), "attn_logit_softcapping", None):
        raise ValueError("its sdpa code leaves out the cap on scores")  # older transformers run it all the same
    runs_so = model.config._attn_implementation == implementation
    return nullcontext() if runs_so or not model._can_set_attn_implementation() else attending_by(model, implementation)


@contextmanager
def attending_by(model: PreTrainedModel, implementation: str) -> Iterator[None]:
    """Set the model's attention code while the block runs."""
    before = model.config._attn_implementation
    model.set_attn_implementation(implementation)
    try:
        yield
    finally:
        model.set_attn_implementation(before)
