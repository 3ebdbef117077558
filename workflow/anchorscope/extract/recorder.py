"""Keeps the output of every block, of its attention and of its MLP at a few tokens, on the device that made it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from anchorscope.extract.axes import COMPONENTS

# Which part of a block each component is the output of.
MODULES: dict[str, Callable[[Any], nn.Module]] = {
    "resid": lambda layer: layer,
    "attn": lambda layer: layer.self_attn,
    "mlp": lambda layer: layer.mlp,
}


@dataclass
class Watch:
    """What one forward pass keeps.

    With a window, every cut branch has several copies. Each in turn is set back to the clean state, and is read when it
    has run through the window's layers.
    """

    keep: list[Tensor]  # for each copy, the packed tokens to keep
    into: list[Tensor]  # for each layer, where they are written: [components, vectors, width]
    back: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # for each copy, its tokens and their clean ones

    def copy_at(self, layer: int) -> int:
        """The copy whose window ends at `layer`: it began at layer - copies + 1, or at the first layer."""
        return max(0, layer - len(self.keep) + 1) % len(self.keep)


class Recorder:
    """Hooks on a model's blocks that do nothing until a forward pass is watched."""

    def __init__(self, model: PreTrainedModel, components: Sequence[str] = COMPONENTS):
        self.components = components
        self.layers = model.get_decoder().layers
        self.devices = [next(layer.parameters()).device for layer in self.layers]
        self.watch: Watch | None = None
        self.handles = [
            module.register_forward_hook(self._keep(component, index))
            for index, layer in enumerate(self.layers)
            for component, module in enumerate(MODULES[name](layer) for name in components)
        ]
        self.handles += [
            layer.register_forward_pre_hook(self._set_back(index)) for index, layer in enumerate(self.layers) if index
        ]

    def _keep(self, component: int, layer: int) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            states = output[0] if isinstance(output, tuple) else output  # [1, tokens, width]
            self.devices[layer] = states.device
            if self.watch is not None:
                places = self.watch.keep[self.watch.copy_at(layer)].to(states.device)
                target = self.watch.into[layer][component]
                torch.index_select(states.flatten(0, 1), 0, places, out=target)

        return hook

    def _set_back(self, layer: int) -> Callable[[nn.Module, Any], None]:
        def hook(module: nn.Module, inputs: Any) -> None:
            if self.watch is not None and self.watch.back:
                states = inputs[0].flatten(0, 1)
                copies, clean = (places.to(states.device) for places in self.watch.back[layer % len(self.watch.back)])
                states.index_copy_(0, copies, states.index_select(0, clean))

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
def recording(model: PreTrainedModel, components: Sequence[str] = COMPONENTS) -> Iterator[Recorder]:
    """A recorder of some components, on `model` while the block runs."""
    recorder = Recorder(model, components)
    try:
        yield recorder
    finally:
        for handle in recorder.handles:
            handle.remove()
