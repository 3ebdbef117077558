"""Forward passes, however they are made, and what is kept of them: what parts of blocks give at a few tokens."""

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from anchorscope.engine.packing import to_device
from anchorscope.engine.parts import MODULES, Parts, ending_after
from anchorscope.engine.work import Work

Places = list[list[int]]  # of each item, among all tokens of a pass


@dataclass(frozen=True)
class Forward:
    """What runs a pass, and where the items are read in it: at the same tokens in all layers, but for a window."""

    run: Callable[[], Tensor]  # what the model gives for every token, [tokens, ...]
    places: list[Places]
    of_layer: list[int]  # which of these places hold in each layer
    # With a window, tokens that are set back before a layer, and the clean ones that they become: in turn.
    back: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)


class Recorder(ExitStack):
    """Hooks on a model's blocks that do nothing until a forward pass is recorded; closing it takes them back."""

    def __init__(self, parts: Parts, work: Work):
        super().__init__()
        self.parts, self.work = parts, work
        modules = {
            (layer, component): MODULES[name](parts.blocks[layer])
            for layer in work.layers
            for component, name in enumerate(work.components)
        }
        # Nothing after the last module that is read need be run.
        last = max(work.layers)
        self.last: nn.Module = modules[last, 0] if len(work.components) == 1 else parts.blocks[last].module
        self.devices = {layer: next(parts.blocks[layer].module.parameters()).device for layer in work.layers}
        self.keep: dict[int, tuple[Tensor, Tensor]] = {}  # by layer: which tokens, and where to: [components, ...]
        self.back: list[tuple[Tensor, Tensor]] = []
        for (layer, component), module in modules.items():
            self.enter_context(module.register_forward_hook(partial(self._keep, component, layer)))
        for layer, block in enumerate(parts.blocks[1:], 1):
            self.enter_context(block.module.register_forward_pre_hook(partial(self._set_back, layer)))

    def _keep(self, component: int, layer: int, module: nn.Module, inputs: Any, output: Any) -> None:
        states = self.parts.states(output)
        self.devices[layer] = states.device
        if layer in self.keep:
            places, into = self.keep[layer]
            torch.index_select(states.flatten(0, -2), 0, places.to(states.device), out=into[component])

    def _set_back(self, layer: int, module: nn.Module, inputs: Any) -> None:
        if self.back:
            states = inputs[0]  # [..., tokens, width]
            copies, clean = (places.to(states.device) for places in self.back[layer % len(self.back)])
            states.index_copy_(-2, copies, states.index_select(-2, clean))

    def blocks(self, forwards: list[Forward], width: int, dtype: torch.dtype) -> list[Tensor]:
        """The vectors of some forward passes after each other, [components, layers, vectors, width] for each device."""
        counts = [sum(map(len, forward.places[0])) for forward in forwards]
        found = [
            torch.empty(len(self.work.components), layers, sum(counts), width, dtype=dtype, device=device)
            for device, layers in Counter(self.devices.values()).items()
        ]
        shares = zip(*(block.split(counts, dim=2) for block in found), strict=True)  # of each pass, by device
        for forward, share in zip(forwards, shares, strict=True):
            parts = [layer for block in share for layer in block.unbind(1)]
            self._record(forward, dict(zip(self.work.layers, parts, strict=True)))
        return found

    def _record(self, forward: Forward, into: dict[int, Tensor]) -> None:
        device = next(iter(into.values())).device
        ordered = (np.concatenate(some) if self.work.by_item else np.array(some).T.ravel() for some in forward.places)
        places = [to_device(some, device) for some in ordered]
        self.keep = {layer: (places[forward.of_layer[layer]], target) for layer, target in into.items()}
        self.back = [(to_device(copies, device), to_device(clean, device)) for copies, clean in forward.back]
        try:
            with ending_after(self.last):
                forward.run()
        finally:
            self.keep, self.back = {}, []
