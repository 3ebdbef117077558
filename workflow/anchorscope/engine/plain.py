"""Padded batches of whole sequences through the model's own code, with keys hidden from its attention, or favoured.

Slower than packs, and right for every model whose attention can be met: nothing is shared, left out or rearranged.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from anchorscope.engine.packing import to_device
from anchorscope.engine.parts import Parts, decoder_of, hooked, input_device
from anchorscope.engine.recorder import Forward, Places
from anchorscope.engine.scores import Scores
from anchorscope.engine.work import Bias, Item, Trunk, Variant


@dataclass(frozen=True)
class Row:
    """A sequence of tokens, and in which layers which of them are hidden from every later token outside `cut`."""

    ids: np.ndarray
    cut: list[int]
    layers: range
    bias: Bias | None = None


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
            max(sum(len(row.ids) for variant in own for row in self._rows(variant)) for own in item)
            for item in self.items
        ]

    def forwards(self, batch: list[int]) -> Iterator[Forward]:
        """A forward pass for each trunk of some items."""
        for trunks in zip(*(self.items[index] for index in batch), strict=True):
            runs = [[self._rows(variant) for variant in own] for own in trunks]
            rows = [row for some in runs for mine in some for row in mine]
            layers = range(len(self.parts.blocks))
            yield Forward(
                run=partial(self._run, rows),
                places=[_places(trunks, runs, layer) for layer in (layers if self.window else range(1))],
                of_layer=[layer if self.window else 0 for layer in layers],
            )

    def _run(self, rows: list[Row]) -> Tensor:
        run = self.model if self.head else decoder_of(self.model)
        return cast(Tensor, run_rows(self.model, self.parts, rows, run=run)[0]).flatten(0, 1)

    def _rows(self, variant: Variant) -> list[Row]:
        """The runs of a variant: one, or with a window one for each layer, cut in the last layers up to it."""
        everywhere = range(len(self.parts.blocks))
        if self.window is None or not variant.cut:
            return [Row(variant.ids, variant.cut, everywhere, variant.bias)]
        windows = [everywhere[max(0, layer - self.window + 1) : layer + 1] for layer in everywhere]
        return [Row(variant.ids, variant.cut, window, variant.bias) for window in windows]


def _places(trunks: tuple[Trunk, ...], runs: list[list[list[Row]]], layer: int) -> Places:
    """Where items are read at a layer, among all tokens of rows that are padded to one length."""
    length = max(len(row.ids) for some in runs for mine in some for row in mine)
    found, first = [], 0
    for own, some in zip(trunks, runs, strict=True):
        places = []
        for variant, mine in zip(own, some, strict=True):
            places += [(first + layer % len(mine)) * length + place for place in variant.read]
            first += len(mine)
        found.append(places)
    return found


def run_rows(model: PreTrainedModel, parts: Parts, rows: list[Row], padding: int = 0, run: Any = None) -> Any:
    """What `run`, by default the decoder, gives for sequences padded to one length.

    Hooks on the blocks see [rows, length, width]. Padding is on the right, where no token of a sequence sees it: as
    much as the longest has less, and `padding`.
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
    scores = Scores(rows=len(rows), queries=length, bias=_added(rows, length, device))

    def hide(layer: int, module: nn.Module, args: Any) -> None:
        scores.hide(_hidden_in(layer, rows, hidden))

    hooks = (block.module.register_forward_pre_hook(partial(hide, layer)) for layer, block in enumerate(parts.blocks))
    with hooked(hooks), scores:
        return (run or decoder_of(model))(input_ids=to_device(tokens, device), use_cache=False)


def _added(rows: list[Row], length: int, device: torch.device) -> Tensor | None:
    """The rows' bias [rows, 1 or heads, queries, keys]; None where no row has one."""
    tokens = np.arange(length)
    found = {index: row.bias.on(tokens, tokens) for index, row in enumerate(rows) if row.bias is not None}
    if not found:
        return None
    added = np.zeros((len(rows), max(map(len, found.values())), length, length), np.float32)
    for index, own in found.items():
        added[index] = own
    return to_device(added, device)


def _hidden_in(layer: int, rows: list[Row], hidden: Tensor) -> Tensor | None:
    """What is hidden in a layer: the same tensor wherever that is all of it, and None where no row has a cut."""
    cut_rows = [row for row in rows if row.cut]
    if all(layer in row.layers for row in cut_rows):
        return hidden if cut_rows else None
    active = torch.tensor([layer in row.layers for row in rows], device=hidden.device)
    return hidden & active[:, None, None, None]
