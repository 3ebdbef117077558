"""Padded batches of whole sequences through the model's own code, with keys hidden from its attention, or favoured.

Slower than packs, and right for every model whose attention can be met: nothing is shared, left out or rearranged.
"""

from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from anchorscope.engine.packing import to_device
from anchorscope.engine.parts import Parts, decoder_of, input_device
from anchorscope.engine.scores import Scores


@dataclass(frozen=True)
class Bias:
    """What is added to attention's scores in every layer: to those of each key, for the queries from `start` on."""

    start: int
    of_keys: np.ndarray  # [tokens]


@dataclass(frozen=True)
class Row:
    """A sequence of tokens, and in which layers which of them are hidden from every later token outside `cut`."""

    ids: np.ndarray
    cut: list[int]
    layers: range
    bias: Bias | None = None


def run_rows(model: PreTrainedModel, parts: Parts, rows: list[Row], padding: int = 0) -> int:
    """Run sequences padded to one length, which is returned. Hooks on the blocks see [rows, length, width].

    Padding is on the right, where no token of a sequence sees it: as much as the longest has less, and `padding`.
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
    with ExitStack() as stack:
        scores = Scores(rows=len(rows), queries=length)
        hiding = _in_layers(hidden, rows, layers=len(parts.blocks))
        for block, mine in zip(parts.blocks, hiding, strict=True):
            stack.callback(
                block.module.register_forward_pre_hook(lambda module, args, mine=mine: scores.hide(mine())).remove
            )
        scores.favour(_added(rows, length, device))
        stack.enter_context(scores)
        decoder_of(model)(input_ids=to_device(tokens, device), use_cache=False)
    return length


def _added(rows: list[Row], length: int, device: torch.device) -> Tensor | None:
    """The rows' bias [rows, 1, queries, keys]; None where no row has one."""
    if all(row.bias is None for row in rows):
        return None
    added = np.zeros((len(rows), 1, length, length), np.float32)
    for index, row in enumerate(rows):
        if row.bias is not None:
            added[index, 0, row.bias.start :, : len(row.bias.of_keys)] = row.bias.of_keys
    return to_device(added, device)


def _in_layers(hidden: Tensor, rows: list[Row], layers: int) -> list:
    """For each layer, a function that gives what is hidden there; the same tensor while nothing changes."""
    cut_rows = [row for row in rows if row.cut]
    if not cut_rows:
        return [lambda: None] * layers
    if all(row.layers == range(layers) for row in cut_rows):
        return [lambda: hidden] * layers

    def at(layer: int) -> Tensor:
        active = torch.tensor([layer in row.layers for row in rows], device=hidden.device)
        return hidden & active[:, None, None, None]

    return [lambda layer=layer: at(layer) for layer in range(layers)]
