"""Kernels for NVIDIA GPUs, in Triton, which comes with torch for them: two elementwise ones, and attention in packs."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from anchorscope.engine.packing import Ragged

BLOCK = 4096
# What a program of attention multiplies at once: the queries of all heads that share keys, and keys.
TILE_ROWS, TILE_KEYS = 64, 32


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
def _rotate(  # type: ignore[no-untyped-def]
    states, cos, sin, heads, half, all_heads: tl.constexpr, all_half: tl.constexpr
):
    token = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, all_heads)[:, None]
    number = tl.arange(0, all_half)[None, :]
    there = number < half
    inside = (head < heads) & there
    first = states + (token * heads + head) * 2 * half + number
    cos += token * 2 * half + number
    sin += token * 2 * half + number
    x = tl.load(first, mask=inside).to(tl.float32)
    y = tl.load(first + half, mask=inside).to(tl.float32)
    new_x = x * tl.load(cos, mask=there).to(tl.float32) - y * tl.load(sin, mask=there).to(tl.float32)
    new_y = y * tl.load(cos + half, mask=there).to(tl.float32) + x * tl.load(sin + half, mask=there).to(tl.float32)
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
            triton.next_power_of_2(width // 2),
            num_warps=4,
        )
    return states


@triton.jit
def _vectors(pool, steps, head, place, number, there):  # type: ignore[no-untyped-def]
    """Of one head the vectors at some places of a pool, [places, numbers]; zero where they are not there."""
    at = (place * steps[0] + head * steps[1])[:, None] + number[None, :]
    return tl.load(pool + at, mask=there, other=0.0)


@triton.jit
def _attend(  # type: ignore[no-untyped-def]
    query,
    query_steps,
    shared_keys,
    shared_key_steps,
    shared_values,
    shared_value_steps,
    shared,
    keys,
    key_steps,
    values,
    value_steps,
    out,
    key_places,
    query_bounds,
    key_starts,
    key_counts,
    scale,
    heads,
    has_shared: tl.constexpr,
    softcap: tl.constexpr,
    sliding: tl.constexpr,
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
        key_places += tl.load(key_starts + sequence)
        seen = shared + tl.load(key_counts + sequence)
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
            own = (key >= shared) & (key < end)
            place = tl.load(key_places + key - shared, mask=own, other=0).to(tl.int64)
            there = own[:, None] & (number < width)[None, :]
            own_keys = _vectors(keys, key_steps, head, place, number, there)
            own_values = _vectors(values, value_steps, head, place, number, there)
            if has_shared:
                there = (key < shared)[:, None] & (number < width)[None, :]
                own_keys += _vectors(shared_keys, shared_key_steps, head, key.to(tl.int64), number, there)
                own_values += _vectors(shared_values, shared_value_steps, head, key.to(tl.int64), number, there)
            scores = tl.dot(states, tl.trans(own_keys)) * scale
            if softcap is not None:  # softcap * tanh(scores / softcap)
                scores = softcap * (2 / (1 + tl.exp(-2 / softcap * scores)) - 1)
            visible = key[None, :] <= latest[:, None]
            if sliding is not None:
                visible &= latest[:, None] - key[None, :] < sliding
            scores = tl.where(visible, scores, -float("inf"))
            higher = tl.maximum(most, tl.max(scores, 1))
            weights = tl.where(visible, tl.exp(scores - higher[:, None]), 0.0)
            fading = tl.where(most == higher, 1.0, tl.exp(most - higher))
            total = total * fading + tl.sum(weights, 1)
            mixed = mixed * fading[:, None] + tl.dot(weights.to(own_values.dtype), own_values)
            most = higher
        at = (token * heads + of_head)[:, None] * width + number[None, :]
        tl.store(out + at, (mixed / total[:, None]).to(out.dtype.element_ty), mask=used)


def attend_ragged(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    ragged: Ragged,
    scale: float,
    shared: tuple[Tensor, Tensor] | None = None,
    softcap: float | None = None,
    sliding: int | None = None,
) -> Tensor:
    """Attention of every query [tokens, heads, width] to the keys of its sequence up to itself.

    Keys and values are pools [places, heads of keys, width]; before those of its own, every sequence sees all that are
    `shared`. With `sliding` a query sees only so many keys. A vector's numbers are next to one another.
    """
    tokens, heads, width = query.shape
    of_keys = keys.shape[1]
    sharers = heads // of_keys
    # As many as there are to multiply, but a matrix product has 16 at least.
    rows = max(
        16, triton.next_power_of_2(sharers), min(TILE_ROWS, triton.next_power_of_2(sharers * ragged.most_queries))
    )
    all_width = max(16, triton.next_power_of_2(width))
    before = shared or (keys[:0], values[:0])
    pools = [part for pool in (*before, keys, values) for part in (pool, pool.stride()[:2])]
    out = query.new_empty(tokens, heads, width)
    grid = (len(ragged.query_bounds) - 1, of_keys, triton.cdiv(ragged.most_queries, rows // sharers))
    with torch.cuda.device(query.device):
        _attend[grid](
            query,
            query.stride()[:2],
            *pools[:4],
            len(before[0]),
            *pools[4:],
            out,
            ragged.key_places,
            ragged.query_bounds,
            ragged.key_starts,
            ragged.key_counts,
            scale,
            heads,
            shared is not None,
            softcap,
            sliding,
            sharers,
            width,
            all_width,
            rows,
            TILE_KEYS,
            num_warps=4 if all_width <= 128 else 8,
        )
    return out
