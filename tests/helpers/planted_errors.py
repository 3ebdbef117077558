"""Errors that a packed pass could have, one at a time, to see whether a trial finds them; and weights with outliers."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel

from anchorscope.engine import packs, self_check
from anchorscope.engine.packing import Branch, Pack
from anchorscope.engine.parts import Parts
from anchorscope.engine.self_check import _Trial

OUTLIER = 1000.0  # times the median of a matrix
SCALE = 1.25


def plant_outliers(model: PreTrainedModel) -> None:
    """One weight of every matrix becomes a thousand times the median of them all."""
    draw = torch.Generator().manual_seed(0)
    for weight in model.parameters():
        if weight.dim() == 2:
            place = int(torch.randint(weight.numel(), (1,), generator=draw))
            weight.data.view(-1)[place] = OUTLIER * weight.float().abs().median().to(weight.dtype)


def with_biases(model: PreTrainedModel, parts: Parts) -> list[nn.Module]:
    """The matrices of attention that have a bias. Those that begin at nothing are drawn."""
    inside = [part for block in parts.blocks if block.attention for part in block.attention.modules()]
    matrices = [part for part in inside if isinstance(getattr(part, "weight", None), Tensor) and part.weight.dim() == 2]
    found = [part for part in matrices if getattr(part, "bias", None) is not None]
    draw = torch.Generator().manual_seed(1)
    for part in found:
        if not part.bias.abs().max() > 0:
            part.bias.data.copy_(0.5 * torch.randn(part.bias.shape, generator=draw))
    return found


@contextmanager
def _attending(change: Callable[..., dict], after: Callable = lambda out: out) -> Iterator[None]:
    """Packed attention whose arguments or output are changed."""
    original = packs.attend

    def changed(module: nn.Module, query: Any, key: Any, value: Any, *others: Any, **more: Any) -> tuple:
        given = {"query": query, "key": key, "value": value, **more}
        given |= change(module, **given)
        query, key, value = (given.pop(name) for name in ("query", "key", "value"))
        out, weights = original(module, query, key, value, *others, **given)
        return after(out), weights

    AttentionInterface.register(packs.NAME, changed)
    try:
        yield
    finally:
        AttentionInterface.register(packs.NAME, original)


@contextmanager
def bias_left_out(trial: _Trial) -> Iterator[None]:
    with ExitStack() as stack:
        for part in with_biases(trial.model, trial.parts):
            own = part.bias.data.clone()
            part.bias.data.zero_()
            stack.callback(part.bias.data.copy_, own)
        yield


def window_ignored(trial: _Trial) -> Any:
    return _attending(lambda module, **given: {"sliding_window": None})


def wrong_scale(trial: _Trial) -> Any:
    def change(module: nn.Module, query: Any, **given: Any) -> dict:
        own = given.get("scaling")
        return {"scaling": SCALE * (query.shape[-1] ** -0.5 if own is None else own)}

    return _attending(change)


def head_dropped(trial: _Trial) -> Any:
    def after(out: Any) -> Any:
        out = out.clone()
        out[:, :, 0] = 0
        return out

    return _attending(lambda module, **given: {}, after)


def prefix_off_by_one(trial: _Trial) -> Any:
    """Every key and value of the prefix stands one place further on."""

    def change(module: nn.Module, past: Any, **given: Any) -> dict:
        layer, shared = module.layer_idx, trial.shared
        if past.grows or layer not in past.pools:
            return {}
        keys, values = past.pools[layer]
        moved = torch.cat([keys[:shared].roll(1, 0), keys[shared:]])
        return {"past": packs.Past({**past.pools, layer: (moved, values)})}

    return _attending(change)


@contextmanager
def position_off_in_branch(trial: _Trial) -> Iterator[None]:
    """The tokens of a branch follow one another, as if nothing were cut."""
    original = self_check.run_decoder

    def moved(model: PreTrainedModel, pack: Pack, past: Any) -> Any:
        start = pack.starts[0][1]
        own = slice(start, start + len(pack.trees[0].branches[1].tokens))
        pack.positions = pack.positions.copy()
        pack.positions[own] = pack.positions[own.start] - 1 + range(own.stop - own.start)
        return original(model, pack, past)

    with patch.object(self_check, "run_decoder", moved):
        yield


def keys_of_another_layer(trial: _Trial) -> Any:
    """The second half of the layers attend to the keys and values of the layer before them."""
    last: dict[int, tuple] = {}

    def change(module: nn.Module, key: Any, value: Any, **given: Any) -> dict:
        layer = module.layer_idx
        last[layer] = key, value
        before = last.get(layer - 1)
        late = layer >= len(trial.parts.blocks) // 2
        if late and before is not None and before[0].shape == key.shape and before[1].shape == value.shape:
            return {"key": before[0], "value": before[1]}
        return {}

    return _attending(change)


@contextmanager
def cut_token_seen(trial: _Trial) -> Iterator[None]:
    """A branch sees the first token that is cut."""

    def branch(tokens: Any, positions: Any, fork: int) -> Branch:
        return Branch(tokens, positions, fork + 1)

    with patch.object(self_check, "Branch", branch):
        yield


ERRORS: dict[str, Callable[[_Trial], Any]] = {
    "a bias left out": bias_left_out,
    "a window ignored": window_ignored,
    "a wrong scale": wrong_scale,
    "one head dropped": head_dropped,
    "a prefix off by one": prefix_off_by_one,
    "a wrong position in a branch": position_off_in_branch,
    "keys of another layer": keys_of_another_layer,
    "a cut token that is still seen": cut_token_seen,
}
