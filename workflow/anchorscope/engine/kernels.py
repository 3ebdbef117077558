"""Two elementwise kernels for NVIDIA GPUs, in Triton, which comes with torch for them."""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096


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
