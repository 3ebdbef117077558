"""Tensors by layer, in dataclasses, dicts and lists of whatever depth: changed all alike, or joined layer to layer."""

from collections.abc import Callable, Sequence
from dataclasses import is_dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

Kept = TypeVar("Kept")  # what keeps tensors


def each(kept: Kept, change: Callable[[Tensor], Tensor]) -> Kept:
    """The same with every tensor changed."""
    return _made([kept], lambda tensors: change(tensors[0]))


def joined(parts: Sequence[Kept]) -> Kept:
    """The layers of one part after those of the other."""
    return _made(parts, torch.cat)


def _made(parts: Sequence[Any], make: Callable[[list[Tensor]], Tensor]) -> Any:
    """The same as each of the parts, with what `make` makes of the tensors that have the same place in all."""
    first = parts[0]
    if isinstance(first, Tensor):
        return make(list(parts))
    if isinstance(first, list):
        return [_made(same, make) for same in zip(*parts, strict=True)]
    if isinstance(first, dict):
        return {key: _made([part[key] for part in parts], make) for key in first}
    if is_dataclass(first):
        return replace(first, **_made([vars(part) for part in parts], make))  # type: ignore[type-var]
    raise TypeError(f"{type(first).__name__} keeps no tensors by layer.")
