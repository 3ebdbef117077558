"""Variants as trees in packs: what they begin with alike is computed once, and what changes is a branch."""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from torch import nn
from transformers import PreTrainedModel

from anchorscope.engine.attention import run_decoder
from anchorscope.engine.openings import Openings
from anchorscope.engine.packing import Branch, Pack, Tree, trunk
from anchorscope.engine.recorder import Forward, Places
from anchorscope.engine.work import Item, Trunk, beginning


class Packs:
    """A model that is ready to run batches of items in packs.

    With a window, every branch has as many copies as the window has layers. Each in turn is set back to the clean
    state, and is read when it has run through the window's layers.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        items: Sequence[Item],
        layers: int,
        window: int | None = None,
        last: nn.Module | None = None,
    ):
        """With `last`, the model runs no further than that module."""
        self.model, self.window, self.copies = model, window, window or 1
        # The copy whose window ends at a layer began `copies` - 1 layers before it, or at the first layer.
        self.of_layer = [max(0, layer - self.copies + 1) % self.copies for layer in range(layers)]
        self.trunks = list(zip(*items, strict=True))  # [trunks][items]
        self.openings = [Openings(model, [beginning(own) for own in trunks], last) for trunks in self.trunks]
        self.trees = [
            [grow_tree(own, openings.known(beginning(own)), window) for own in trunks]
            for openings, trunks in zip(self.openings, self.trunks, strict=True)
        ]

    def sizes(self) -> list[int]:
        """How many tokens each item adds to a forward pass."""
        return [max(tree.size for tree in trees) for trees in zip(*self.trees, strict=True)]

    def forwards(self, batch: list[int]) -> Iterator[Forward]:
        """A forward pass for each trunk of some items."""
        for openings, trees, trunks in zip(self.openings, self.trees, self.trunks, strict=True):
            pack = Pack([trees[index] for index in batch], len(openings.past))
            mine = [trunks[index] for index in batch]
            yield Forward(
                run=partial(run_decoder, self.model, pack, openings.past),
                places=[self._places(pack, mine, copy) for copy in range(self.copies)],
                of_layer=self.of_layer,
                back=[self._back(pack, len(mine[0]), copy) for copy in range(self.copies)] if self.window else [],
            )

    def _places(self, pack: Pack, trunks: list[Trunk], copy: int) -> Places:
        return [
            [
                place
                for number, variant in enumerate(own)
                for place in pack.places(tree, 1 + number * self.copies + copy, variant.read)
            ]
            for tree, own in enumerate(trunks)
        ]

    def _back(self, pack: Pack, variants: int, copy: int) -> tuple[np.ndarray, np.ndarray]:
        return pack.with_trunk_places(range(1 + copy, 1 + variants * self.copies, self.copies))


def grow_tree(variants: Trunk, known: np.ndarray, copies: int | None = None) -> Tree:
    """Variants as a tree: the first one's tokens are the trunk, as far as any needs them, and each is a branch of it.

    `known` are the pool places of the trunk's first tokens.

    A cut token is hidden, in every layer, from every later token that is not cut itself. So what is read depends on no
    cut token at all, and a branch leaves them out: from its fork on it has the tokens that are not cut, at their own
    positions. A variant that differs from the trunk in nothing is a branch without tokens.

    With `copies`, each variant has that many branches, and the trunk begins before all of them and goes on to its end.
    """
    ids = variants[0].ids
    forks = [variant.fork(ids) for variant in variants]
    end = len(ids) if copies else max(forks)
    start = min(len(known), end, *(forks if copies else ()))
    tree = trunk(known[:start], ids[start:end])
    for variant, fork in zip(variants, forks, strict=True):
        left = np.arange(len(variant.ids)) >= fork
        left[variant.cut] = False
        positions = left.nonzero()[0]
        tree.branches.extend([Branch(variant.ids[positions], positions, fork, variant.bias)] * (copies or 1))
    return tree
