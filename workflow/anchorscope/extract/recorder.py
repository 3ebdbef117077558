"""Keeps a few positions of every block's output, its attention's and its MLP's, on the device that made them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from anchorscope.extract.axes import COMPONENTS

# The part of a block whose output each component is.
MODULES: dict[str, Callable[[nn.Module], nn.Module]] = {
    "resid": lambda layer: layer,
    "attn": lambda layer: layer.self_attn,
    "mlp": lambda layer: layer.mlp,
}


@dataclass
class Watch:
    """What one forward pass must keep.

    With a window there are several copies of every cut branch; each in turn is set back to the clean
    state, and read when it has run through the window's layers.
    """

    keep: list[Tensor]  # for each copy, the packed tokens to keep
    into: list[Tensor]  # for each layer, where in the block they go: [components, vectors, width]
    back: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # for each copy, its tokens and their clean ones

    def copy_at(self, layer: int) -> int:
        """The copy whose window ends at `layer`: it began at layer - copies + 1, or at the first layer."""
        return max(0, layer - len(self.keep) + 1) % len(self.keep)


class Recorder:
    """Hooks on a model's blocks, silent until a forward pass is watched."""

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

    def _keep(self, component: int, layer: int):
        def hook(module, inputs, output):
            states = output[0] if isinstance(output, tuple) else output  # [1, tokens, width]
            self.devices[layer] = states.device
            if self.watch is not None:
                places = self.watch.keep[self.watch.copy_at(layer)].to(states.device)
                target = self.watch.into[layer][component]
                torch.index_select(states.flatten(0, 1), 0, places, out=target)

        return hook

    def _set_back(self, layer: int):
        def hook(module, inputs):
            if self.watch is not None and self.watch.back:
                states = inputs[0].flatten(0, 1)
                copies, clean = (places.to(states.device) for places in self.watch.back[layer % len(self.watch.back)])
                states.index_copy_(0, copies, states.index_select(0, clean))

        return hook

    @contextmanager
    def watching(self, watch: Watch) -> Iterator[None]:
        self.watch = watch
        try:
            yield
        finally:
            self.watch = None


@contextmanager
def recording(model: PreTrainedModel, components: Sequence[str] = COMPONENTS) -> Iterator[Recorder]:
    """A recorder of some components on `model` that is taken off again."""
    recorder = Recorder(model, components)
    try:
        yield recorder
    finally:
        for handle in recorder.handles:
            handle.remove()
