"""Forward passes: what is kept of one, and padded batches through the model's own code.

In plain batches, whole sequences run, and keys are hidden from the model's own attention, or favoured. They are slower
than packs, and right for every model whose attention can be met: nothing is shared, left out or rearranged.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from anchorscope.engine.attention_mask import AttentionScores
from anchorscope.engine.packing import laid_out, to_device
from anchorscope.engine.parts import MODULES, Parts, decoder_of, ending_after, hooked, input_device
from anchorscope.engine.work import Item, Trunk, Variant, Work

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


class Rows:
    """A model that is ready to run batches of items as rows; with a window, what is cut has a row for every layer."""

    def __init__(
        self,
        model: PreTrainedModel,
        parts: Parts,
        items: Sequence[Item],
        window: int | None = None,
        head: bool = False,
    ):
        """With `head`, logits are computed, too."""
        self.model, self.parts, self.items, self.window, self.head = model, parts, items, window, head

    def sizes(self) -> list[int]:
        """How many tokens each item adds to a forward pass."""
        return [
            max(sum(len(variant.ids) * len(self._windows(variant)) for variant in own) for own in item)
            for item in self.items
        ]

    def forwards(self, batch: list[int]) -> Iterator[Forward]:
        """A forward pass for each trunk of some items."""
        layers = range(len(self.parts.blocks))
        for trunks in zip(*(self.items[index] for index in batch), strict=True):
            yield Forward(
                run=partial(self._run, [variant for own in trunks for variant in own]),
                places=[self._places(trunks, layer) for layer in (layers if self.window else range(1))],
                of_layer=[layer if self.window else 0 for layer in layers],
            )

    def _run(self, variants: list[Variant]) -> Tensor:
        runs = [(variant, window) for variant in variants for window in self._windows(variant)]
        rows, windows = zip(*runs, strict=True)
        return cast(Tensor, run_rows(self.model, self.parts, rows, windows, head=self.head)[0]).flatten(0, 1)

    def _windows(self, variant: Variant) -> list[range]:
        """The layers in which each run of a variant is cut: all, or with a window for each layer the last up to it."""
        everywhere = range(len(self.parts.blocks))
        if self.window is None or not variant.cut:
            return [everywhere]
        return [everywhere[max(0, layer - self.window + 1) : layer + 1] for layer in everywhere]

    def _places(self, trunks: tuple[Trunk, ...], layer: int) -> Places:
        """Where items are read at a layer, among all tokens of rows that are padded to one length."""
        length = max(len(variant.ids) for own in trunks for variant in own)
        found, first = [], 0
        for own in trunks:
            places = []
            for variant in own:
                runs = len(self._windows(variant))
                places += [(first + layer % runs) * length + place for place in variant.read]
                first += runs
            found.append(places)
        return found


def run_rows(
    model: PreTrainedModel,
    parts: Parts,
    rows: Sequence[Variant],
    windows: Sequence[range] | None = None,
    padding: int = 0,
    head: bool = False,
) -> Any:
    """What the decoder, or with `head` the whole model, gives for sequences padded to one length.

    `windows` are the layers in which the tokens that each row cuts are hidden, by default all of them. Hooks on the
    blocks see [rows, length, width]. Padding is on the right, where no token of a sequence sees it: as much as the
    longest has less, and `padding`.
    """
    length = max(len(row.ids) for row in rows) + padding
    tokens, cuts = np.empty((len(rows), length), np.int64), np.zeros((len(rows), length), bool)
    for index, row in enumerate(rows):
        tokens[index, : len(row.ids)] = row.ids
        tokens[index, len(row.ids) :] = row.ids[-1]
        cuts[index, row.cut] = True
    device = input_device(model)
    cut = to_device(cuts, device)
    hidden = (cut[:, None, :] & ~cut[:, :, None]).tril()[:, None]  # [rows, 1, queries, keys]
    scores = AttentionScores(rows=len(rows), queries=length, bias=_added(rows, length, device))

    def hide(layer: int, module: nn.Module, args: Any) -> None:
        scores.hide(_hidden_in(layer, rows, windows or [range(len(parts.blocks))] * len(rows), hidden))

    hooks = (block.module.register_forward_pre_hook(partial(hide, layer)) for layer, block in enumerate(parts.blocks))
    with hooked(hooks), scores:
        return (model if head else decoder_of(model))(input_ids=to_device(tokens, device), use_cache=False)


def _added(rows: Sequence[Variant], length: int, device: torch.device) -> Tensor | None:
    """The rows' bias [rows, 1 or heads, queries, keys]; None where no row has one."""
    tokens = np.arange(length)
    found = {(index, 0): row.bias.on(tokens, tokens) for index, row in enumerate(rows) if row.bias is not None}
    return laid_out(found, (len(rows), length, length), device) if found else None


def _hidden_in(layer: int, rows: Sequence[Variant], windows: Sequence[range], hidden: Tensor) -> Tensor | None:
    """What is hidden in a layer: the same tensor wherever that is all of it, and None where no row has a cut."""
    cutting = [window for row, window in zip(rows, windows, strict=True) if row.cut]
    if all(layer in window for window in cutting):
        return hidden if cutting else None
    active = torch.tensor([layer in window for window in windows], device=hidden.device)
    return hidden & active[:, None, None, None]
