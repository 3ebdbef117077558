"""A pass whose layers are given the states of another one, so that no difference of theirs grows from layer to layer.

And in float32, what a half-precision model's layers make of the same states: how far rounding moves each of them.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from anchorscope.engine.batches import out_of_memory
from anchorscope.engine.parts import Block, Parts

ROOM = 1 / 64  # of the largest number of a dtype: beyond it, what a layer makes of a state may be none
NOISE = 5.0  # what must not be seen is given states so many times the size of others, and of another direction


@dataclass
class Watched:
    """What was seen at some tokens of a pass, for each layer: [tokens, width], in float32 on the host.

    `given` is what the layer before handed on, whole and where the model is: [tokens, ...].
    """

    given: list[Tensor] = field(default_factory=list)
    attended: list[Tensor | None] = field(default_factory=list)  # what attention gave; None without attention
    states: list[Tensor] = field(default_factory=list)  # what the block gave

    def among(self, tokens: list[int]) -> "Watched":
        """The same at some of the tokens only."""
        return Watched(
            [states[tokens] for states in self.given],
            [None if states is None else states[tokens] for states in self.attended],
            [states[tokens] for states in self.states],
        )


def by_token(states: Tensor, parts: Parts) -> Tensor:
    """A view of the states of a pass, [rows, tokens, width] or several streams of them, whose first axis is tokens."""
    if states.dim() == 4 and parts.stream is not None:
        states = states.movedim(0, 2)
    return states.flatten(0, 1)


@contextmanager
def watching(
    parts: Parts,
    places: Sequence[int],
    given: Sequence[Tensor] | None = None,
    unseen: Sequence[int] = (),
    exact: Watched | None = None,
) -> Iterator[Watched]:
    """Watch the tokens at `places`, counted over all rows; with `given`, each layer gets those states there.

    The tokens at `unseen` get noise in every layer: nobody should see them. `exact` is filled on the way, in float32:
    with what attention gives from the states that each layer was given, and what blocks give from the first layer's
    states on, without any rounding. It stays empty where the model's code does not run so.
    """
    watched, at = Watched(), list(places)

    def begin(layer: int, module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        states = states_among(args, kwargs)
        watched.given.append(by_token(states, parts)[at].clone())
        watched.attended.append(None)
        changed = states.clone()
        tokens = by_token(changed, parts)
        if given is not None:
            tokens[at] = given[layer].to(tokens.device)
        if len(unseen):
            tokens[list(unseen)] = noise_like(tokens[list(unseen)], tokens[at])
        return replaced(args, kwargs, states, changed)

    def end(block: Block, module: nn.Module, args: tuple, kwargs: dict, output: Any) -> None:
        watched.states.append(_kept(parts.states(output), at))
        if exact is not None and len(exact.states) == len(watched.states) - 1:  # it has followed so far
            _follow(block, args, kwargs, parts, at, exact)

    with ExitStack() as stack:
        for layer, block in enumerate(parts.blocks):
            stack.enter_context(block.module.register_forward_pre_hook(partial(begin, layer), with_kwargs=True))
            if attends := attention_of(block):
                stack.enter_context(attends.register_forward_hook(partial(_keep, parts, at, watched)))
            stack.enter_context(block.module.register_forward_hook(partial(end, block), with_kwargs=True))
        yield watched


def attention_of(block: Block) -> nn.Module | None:
    """Where what attention adds to the stream is seen: its last matrix, before a block that adds it itself."""
    return block.attention_out or block.attention


def states_among(args: tuple, kwargs: dict) -> Tensor:
    """The states among what a block is given: the first vectors of tokens."""
    return next(
        value
        for value in (*args, *kwargs.values())
        if isinstance(value, Tensor) and value.dim() >= 3 and value.is_floating_point()
    )


def replaced(args: tuple, kwargs: dict, old: Tensor, new: Tensor) -> tuple[tuple, dict]:
    """What a block is given, with other states."""
    return tuple(new if value is old else value for value in args), {
        name: new if value is old else value for name, value in kwargs.items()
    }


def _keep(parts: Parts, places: list[int], watched: Watched, module: nn.Module, args: Any, output: Any) -> None:
    watched.attended[-1] = _kept(parts.states(output), places)


def _kept(states: Tensor, places: list[int]) -> Tensor:
    return states.flatten(0, -2)[places].float().cpu()


def noise_like(states: Tensor, others: Tensor) -> Tensor:
    """As many states of random directions, much larger than those of other tokens.

    Not than these: what was noise in the layer before would grow from layer to layer, beyond all numbers. Where float16
    ends soon, as large as the others' largest at most.
    """
    noise = torch.randn(states.shape, generator=torch.Generator().manual_seed(0)).to(states.device)
    size, largest = others.float().std(), others.float().abs().max().clamp(min=ROOM * torch.finfo(states.dtype).max)
    return (NOISE * size * noise).clamp(-largest, largest).to(states)


def _follow(block: Block, args: tuple, kwargs: dict, parts: Parts, places: list[int], exact: Watched) -> None:
    """Run a float32 copy of a block after it: from the same states, and from what the copy before it handed on."""
    try:
        copy = _copied(block.module)
        exact.attended.append(None)
        if attends := attention_of(block):
            name = next(name for name, part in block.module.named_modules() if part is attends)
            with copy.get_submodule(name).register_forward_hook(partial(_keep, parts, places, exact)):
                _run(copy, args, kwargs)
        own = states_among(args, kwargs)
        last = _run(copy, *replaced(args, kwargs, own, exact.given[0] if exact.given else own))
        exact.given = [states_among((last,) if isinstance(last, Tensor) else tuple(last), {})]
        exact.states.append(_kept(parts.states(last), places))
    except Exception as error:  # whatever the model's code makes of another dtype
        if out_of_memory(error):
            torch.cuda.empty_cache()
        exact.given, exact.attended, exact.states = [], [], []


def _copied(module: nn.Module) -> nn.Module:
    """A float32 copy without hooks: what they hold, such as all other blocks, would be copied, too."""
    parts = list(module.modules())
    hooks = [some for part in parts for some in (part._forward_hooks, part._forward_pre_hooks)]
    known: dict[int, Any] = {id(part.config): part.config for part in parts if hasattr(part, "config")}
    return deepcopy(module, known | {id(some): OrderedDict() for some in hooks}).float()


def _run(module: nn.Module, args: tuple, kwargs: dict) -> Any:
    return module(*_in_float32(args), **_in_float32(kwargs))


def _in_float32(value: Any) -> Any:
    """The same with every tensor of floats in float32; containers are new, so that nothing is left in the old ones."""
    if isinstance(value, Tensor):
        return value.float() if value.is_floating_point() else value
    if isinstance(value, Mapping):
        return {name: _in_float32(part) for name, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_in_float32(part) for part in value)
    return value
