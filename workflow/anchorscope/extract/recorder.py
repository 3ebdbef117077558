"""Keeps the output of every block, of its attention and of its MLP at a few tokens, on the device that made it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from anchorscope.engine.parts import Block, Parts, layers_listed
from anchorscope.extract.axes import COMPONENTS

# Which part of a block each component is the output of; None where a block has no such part.
MODULES: dict[str, Callable[[Block], Any]] = {
    "resid": lambda block: block.module,
    "attn": lambda block: block.attention_out,
    "mlp": lambda block: block.mlp,
}


def check_components(parts: Parts, components: Sequence[str], kind: str) -> None:
    """Refuse a component that some layer does not have."""
    for name in components:
        lacking = [layer for layer, block in enumerate(parts.blocks) if MODULES[name](block) is None]
        if lacking:
            raise ValueError(
                f"{kind} models have no {name} in {layers_listed(lacking)}; leave it out of `components`, and name "
                "another as the headline's `component`."
            )


@dataclass(frozen=True)
class Watch:
    """What one forward pass keeps of each layer."""

    keep: list[Tensor]  # for each layer, which of the pass's tokens
    into: list[Tensor]  # for each layer, where they are written: [components, vectors, width]
    # With a window in a packed pass, for each layer: tokens that are set back before it, and their clean ones.
    back: list[tuple[Tensor, Tensor]] = field(default_factory=list)


class Recorder:
    """Hooks on a model's blocks that do nothing until a forward pass is watched."""

    def __init__(self, parts: Parts, components: Sequence[str] = COMPONENTS):
        self.parts = parts
        self.components = components
        self.devices = [next(block.module.parameters()).device for block in parts.blocks]
        self.watch: Watch | None = None
        self.handles = [
            MODULES[name](block).register_forward_hook(self._keep(component, layer))
            for layer, block in enumerate(parts.blocks)
            for component, name in enumerate(components)
        ]
        self.handles += [
            block.module.register_forward_pre_hook(self._set_back(layer))
            for layer, block in enumerate(parts.blocks)
            if layer
        ]

    def _keep(self, component: int, layer: int) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            states = self.parts.states(output)
            self.devices[layer] = states.device
            if self.watch is not None:
                places = self.watch.keep[layer].to(states.device)
                target = self.watch.into[layer][component]
                torch.index_select(states.flatten(0, -2), 0, places, out=target)

        return hook

    def _set_back(self, layer: int) -> Callable[[nn.Module, Any], None]:
        def hook(module: nn.Module, inputs: Any) -> None:
            if self.watch is not None and self.watch.back:
                states = inputs[0]  # [..., tokens, width]
                copies, clean = (places.to(states.device) for places in self.watch.back[layer])
                states.index_copy_(-2, copies, states.index_select(-2, clean))

        return hook

    @contextmanager
    def watching(self, watch: Watch) -> Iterator[None]:
        """Keep what `watch` says while the block runs."""
        self.watch = watch
        try:
            yield
        finally:
            self.watch = None


@contextmanager
def recording(parts: Parts, components: Sequence[str] = COMPONENTS) -> Iterator[Recorder]:
    """A recorder of some components of a model with these parts, while the block runs."""
    recorder = Recorder(parts, components)
    try:
        yield recorder
    finally:
        for handle in recorder.handles:
            handle.remove()
