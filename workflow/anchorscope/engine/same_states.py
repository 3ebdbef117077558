"""A pass whose layers are given the states of another one, so that no difference of theirs grows from layer to layer.

And in float32, what a half-precision model's layers make of the same states: how far rounding moves each of them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
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


@dataclass
class Exact:
    """The same in float32. Both are empty where the model's code does not run so."""

    attended: list[Tensor | None] = field(default_factory=list)  # from the states that each layer was given
    states: list[Tensor] = field(default_factory=list)  # from the first layer's states on, without any rounding


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
    exact: Exact | None = None,
) -> Iterator[Watched]:
    """Watch the tokens at `places`, counted over all rows; with `given`, each layer gets those states there.

    The tokens at `unseen` get noise in every layer: nobody should see them. `exact` is filled on the way.
    """
    watched, at = Watched(), list(places)

    def begin(layer: int) -> Callable:
        def hook(module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
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

        return hook

    def keep(module: nn.Module, args: Any, output: Any) -> None:
        watched.attended[-1] = _kept(parts.states(output), at)

    def end(block: Block) -> Callable:
        def hook(module: nn.Module, args: tuple, kwargs: dict, output: Any) -> None:
            watched.states.append(_kept(parts.states(output), at))
            follow(block, args, kwargs, at)

        return hook

    follow = _following(parts, exact) if exact is not None else lambda *given: None
    with ExitStack() as stack:
        for layer, block in enumerate(parts.blocks):
            stack.callback(block.module.register_forward_pre_hook(begin(layer), with_kwargs=True).remove)
            if attends := attention_of(block):
                stack.callback(attends.register_forward_hook(keep).remove)
            stack.callback(block.module.register_forward_hook(end(block), with_kwargs=True).remove)
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


def _following(parts: Parts, exact: Exact) -> Callable[[Block, tuple, dict, list[int]], None]:
    """A function that runs a float32 copy of each block after it: from the same states, and from its own last ones."""
    stream: list[Tensor] = []
    failed = False

    def follow(block: Block, args: tuple, kwargs: dict, places: list[int]) -> None:
        nonlocal failed
        if failed:
            return
        try:
            copy = _copied(block.module)
            exact.attended.append(None)
            if attends := attention_of(block):
                name = next(name for name, part in block.module.named_modules() if part is attends)
                handle = copy.get_submodule(name).register_forward_hook(keep(places))
                _run(copy, args, kwargs)
                handle.remove()
            own = states_among(args, kwargs)
            last = _run(copy, *replaced(args, kwargs, own, stream[-1] if stream else own))
            stream[:] = [states_among((last,) if isinstance(last, Tensor) else tuple(last), {})]
            exact.states.append(_kept(parts.states(last), places))
        except Exception as error:  # whatever the model's code makes of another dtype
            if out_of_memory(error):
                torch.cuda.empty_cache()
            failed = True
            exact.attended.clear()
            exact.states.clear()

    def keep(places: list[int]) -> Callable:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            exact.attended[-1] = _kept(parts.states(output), places)

        return hook

    return follow


def _copied(module: nn.Module) -> nn.Module:
    """A float32 copy without hooks."""
    shared = {id(part.config): part.config for part in module.modules() if hasattr(part, "config")}
    copy = deepcopy(module, dict(shared)).float()
    for part in copy.modules():
        for hooks in (part._forward_hooks, part._forward_pre_hooks):
            hooks.clear()
    return copy


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
