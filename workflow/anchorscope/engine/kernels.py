"""Kernels for NVIDIA GPUs, in Triton, which comes with torch for them: two elementwise ones, and attention in packs."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from anchorscope.engine.packing import Ragged

BLOCK = 4096
ROWS = 64  # what a program of attention multiplies at once: the queries of all heads that share keys
KEYS = 64


@triton.jit
def _silu_times(gate, up, size, block: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = at < size
    x = tl.load(gate + at, mask=inside).to(tl.float32)
    y = tl.load(up + at, mask=inside).to(tl.float32)
    tl.store(gate + at, (x / (1 + tl.exp(-x)) * y).to(gate.dtype.element_ty), mask=inside)


def silu_times(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up, written over `gate`. Both are contiguous and of one shape."""
    with torch.cuda.device(gate.device):
        _silu_times[(triton.cdiv(gate.numel(), BLOCK),)](gate, up, gate.numel(), BLOCK)
    return gate


@triton.jit
def _rotate(states, cos, sin, heads, half: tl.constexpr, all_heads: tl.constexpr):  # type: ignore[no-untyped-def]
    token = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, all_heads)[:, None]
    number = tl.arange(0, half)[None, :]
    inside = head < heads
    first = states + (token * heads + head) * 2 * half + number
    angle = token * 2 * half + number
    x = tl.load(first, mask=inside).to(tl.float32)
    y = tl.load(first + half, mask=inside).to(tl.float32)
    new_x = x * tl.load(cos + angle).to(tl.float32) - y * tl.load(sin + angle).to(tl.float32)
    new_y = y * tl.load(cos + angle + half).to(tl.float32) + x * tl.load(sin + angle + half).to(tl.float32)
    tl.store(first, new_x.to(states.dtype.element_ty), mask=inside)
    tl.store(first + half, new_y.to(states.dtype.element_ty), mask=inside)


def rotate(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of states [1, heads, tokens, width], written over them.

    In memory they are [tokens, heads, width]. `cos` and `sin` are [1, tokens, width].
    """
    _, heads, tokens, width = states.shape
    with torch.cuda.device(states.device):
        _rotate[(tokens,)](
            states,
            cos.contiguous(),
            sin.contiguous(),
            heads,
            width // 2,
            triton.next_power_of_2(heads),
            num_warps=4,
        )
    return states


@triton.jit
def _attend(  # type: ignore[no-untyped-def]
    query,
    keys,
    values,
    out,
    key_places,
    query_bounds,
    key_bounds,
    scale,
    query_steps,
    key_steps,
    value_steps,
    heads,
    sharers: tl.constexpr,
    width: tl.constexpr,
    all_width: tl.constexpr,
    rows: tl.constexpr,
    block: tl.constexpr,
):
    sequence, head = tl.program_id(0), tl.program_id(1)
    queries = tl.load(query_bounds + sequence)
    count = tl.load(query_bounds + sequence + 1) - queries
    first = tl.program_id(2) * (rows // sharers)
    if first < count:
        key_places += tl.load(key_bounds + sequence)
        seen = tl.load(key_bounds + sequence + 1) - tl.load(key_bounds + sequence)
        row, number = tl.arange(0, rows), tl.arange(0, all_width)
        mine = first + row // sharers
        used = ((mine < count) & (row < rows // sharers * sharers))[:, None] & (number < width)[None, :]
        of_head = head * sharers + row % sharers
        token = (queries + mine).to(tl.int64)
        at = (token * query_steps[0] + of_head * query_steps[1])[:, None] + number[None, :]
        states = tl.load(query + at, mask=used, other=0.0)
        latest = seen - count + mine  # the last key that each query sees
        most = tl.full([rows], -float("inf"), tl.float32)
        total = tl.zeros([rows], tl.float32)
        mixed = tl.zeros([rows, all_width], tl.float32)
        end = tl.minimum(seen, seen - count + first + rows // sharers)
        for start in range(0, end, block):
            key = start + tl.arange(0, block)
            place = tl.load(key_places + key, mask=key < end, other=0).to(tl.int64)
            there = (key < end)[:, None] & (number < width)[None, :]
            of_key = (place * key_steps[0] + head * key_steps[1])[:, None] + number[None, :]
            of_value = (place * value_steps[0] + head * value_steps[1])[:, None] + number[None, :]
            scores = tl.dot(states, tl.trans(tl.load(keys + of_key, mask=there, other=0.0))) * scale
            scores = tl.where(key[None, :] <= latest[:, None], scores, -float("inf"))
            higher = tl.maximum(most, tl.max(scores, 1))
            weights = tl.exp(scores - higher[:, None])
            fading = tl.exp(most - higher)
            total = total * fading + tl.sum(weights, 1)
            value = tl.load(values + of_value, mask=there, other=0.0)
            mixed = mixed * fading[:, None] + tl.dot(weights.to(value.dtype), value)
            most = higher
        at = (token * heads + of_head)[:, None] * width + number[None, :]
        tl.store(out + at, (mixed / total[:, None]).to(out.dtype.element_ty), mask=used)


def attend_ragged(query: Tensor, keys: Tensor, values: Tensor, ragged: Ragged, scale: float) -> Tensor:
    """Attention of every query [tokens, heads, width] to the keys of its sequence up to itself.

    Keys and values are pools [tokens, heads of keys, width]; a vector's numbers are next to one another.
    """
    tokens, heads, width = query.shape
    of_keys = keys.shape[1]
    sharers = heads // of_keys
    rows = max(ROWS, triton.next_power_of_2(sharers))
    all_width = max(16, triton.next_power_of_2(width))
    out = query.new_empty(tokens, heads, width)
    grid = (len(ragged.query_bounds) - 1, of_keys, triton.cdiv(ragged.most_queries, rows // sharers))
    with torch.cuda.device(query.device):
        _attend[grid](
            query,
            keys,
            values,
            out,
            ragged.key_places,
            ragged.query_bounds,
            ragged.key_bounds,
            scale,
            query.stride()[:2],
            keys.stride()[:2],
            values.stride()[:2],
            heads,
            sharers,
            width,
            all_width,
            rows,
            KEYS,
            num_warps=4 if all_width <= 128 else 8,
        )
    return out
