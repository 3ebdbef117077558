"""Elementwise parts of a block in fewer steps, where a trial shows that the function is the same.

Numbers are read and written between steps, which takes as long as the operations do. On a GPU each is read and written
once; on a processor, half as often. Without this module results would be the same up to rounding.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anchorscope.engine.parts import swapped

ROTARY = "apply_rotary_pos_emb"  # what a family's code calls its rotary embedding
TRIAL = 64  # numbers per vector
HAS_TRITON = find_spec("triton") is not None  # it comes with torch for NVIDIA GPUs
if HAS_TRITON:  # imported now, and not while a GPU is held
    from anchorscope.engine.kernels import rotate, silu_times


@contextmanager
def fused(model: nn.Module) -> Iterator[None]:
    """Fuse the model's norms, gated MLPs and rotary embeddings while the block runs."""
    with ExitStack() as stack:
        for module in model.modules():
            replacement = _norm(module) or _gated_mlp(module)
            if replacement:
                stack.enter_context(swapped(module, "forward", replacement))
        for code in {sys.modules[type(module).__module__] for module in model.modules()}:
            rotary = getattr(code, ROTARY, None)
            if rotary and _rotates_by_halves(rotary):
                stack.enter_context(swapped(code, ROTARY, partial(_rotary, rotary)))
        yield


def _norm(module: Any) -> Callable | None:
    kind: Any = type(module)
    if not (kind.__name__.endswith("RMSNorm") and hasattr(module, "variance_epsilon")):
        return None
    return partial(_rms_norm, module.weight, module.variance_epsilon) if _is_plain_norm(kind) else None


def _rms_norm(weight: Tensor, epsilon: float, states: Tensor) -> Tensor:
    if states.is_cuda or states.dtype != torch.float32:
        return F.rms_norm(states, weight.shape, weight, eps=epsilon)
    squared = torch.linalg.vector_norm(states, dim=-1, keepdim=True).square_()
    return states.mul(squared.div_(states.shape[-1]).add_(epsilon).rsqrt_()).mul_(weight)


@cache
def _is_plain_norm(kind: type) -> bool:
    """Whether norms of this kind scale by their weight and do nothing else."""
    module = kind(TRIAL)
    draw = torch.Generator().manual_seed(0)
    module.weight.data = torch.randn(TRIAL, generator=draw)
    states = torch.randn(8, TRIAL, generator=draw)
    return torch.allclose(module(states), _rms_norm(module.weight, module.variance_epsilon, states), atol=1e-5)


def _gated_mlp(module: Any) -> Callable | None:
    """A fused silu(gate) * up for MLPs that have it. Biases stay with their projections."""
    if not all(hasattr(module, part) for part in ("gate_proj", "up_proj", "down_proj", "act_fn")):
        return None
    kind: Any = type(module)
    activation: Any = type(module.act_fn)
    return partial(_run_mlp, module) if _is_gated(kind, activation) else None


def _run_mlp(module: Any, states: Tensor) -> Tensor:
    gate, up = module.gate_proj(states), module.up_proj(states)
    return module.down_proj(silu_times(gate, up) if HAS_TRITON and gate.is_cuda else F.silu(gate).mul_(up))


@cache
def _is_gated(kind: type, activation: type) -> bool:
    """Whether MLPs of this kind are down(silu(gate) * up) and nothing else."""

    class Shape:
        hidden_size, intermediate_size, hidden_act, mlp_bias = TRIAL, TRIAL, "silu", False

    try:
        module = kind(Shape())
    except (AttributeError, TypeError):
        return False
    if type(module.act_fn) is not activation:
        return False
    states = torch.randn(8, TRIAL, generator=torch.Generator().manual_seed(0))
    expected = module.down_proj(F.silu(module.gate_proj(states)) * module.up_proj(states))
    return torch.allclose(module(states), expected, atol=1e-5)


def _rotary(
    original: Callable, query: Tensor, key: Tensor, cos: Tensor, sin: Tensor, *others: Any, **more: Any
) -> tuple[Tensor, Tensor]:
    given = query, key, cos, sin
    alike = len({states.shape[-1] for states in given}) == 1 and cos.dim() == 3 and not (others or more)
    whole = all(states.shape[0] == 1 and states.transpose(1, 2).is_contiguous() for states in (query, key))
    if alike and HAS_TRITON and query.is_cuda and whole:
        return rotate(query, cos, sin), rotate(key, cos, sin)
    if alike and len({states.dtype for states in given}) == 1:
        return _turned(query, cos, sin), _turned(key, cos, sin)
    return original(*given, *others, **more)


def _turned(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of states [rows, heads, tokens, width]; `cos` and `sin` are [rows, tokens, width]."""
    cos, sin, half = cos[:, None], sin[:, None], states.shape[-1] // 2
    turned = states * cos
    turned[..., :half].addcmul_(states[..., half:], sin[..., :half], value=-1)
    turned[..., half:].addcmul_(states[..., :half], sin[..., half:])
    return turned


@cache
def _rotates_by_halves(rotary: Callable) -> bool:
    """Whether a family's rotary embedding pairs each number with the one half a vector further on."""
    draw = torch.Generator().manual_seed(0)
    query, key = (torch.randn(1, 2, 4, TRIAL, generator=draw) for _ in range(2))
    cos, sin = (torch.randn(1, 4, TRIAL, generator=draw) for _ in range(2))
    expected = [_turned(states, cos, sin) for states in (query, key)]
    try:
        found = rotary(query, key, cos, sin)
    except (RuntimeError, TypeError):
        return False
    return all(torch.allclose(some, other, atol=1e-5) for some, other in zip(found, expected, strict=True))
