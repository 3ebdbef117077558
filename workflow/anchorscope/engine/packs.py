"""Variants as trees in packs: what they begin with alike is computed once, and what changes is a branch.

Questions begin alike, with "Who wrote" or "What is the capital of". Such an opening is computed once for all questions
that begin so, and each of them then needs only the rest of its tokens.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from torch import nn
from transformers import PreTrainedModel

from anchorscope.engine.attention import compute_prefix, extended_past, run_decoder
from anchorscope.engine.packing import Branch, Pack, Tree, trunk
from anchorscope.engine.recorder import Forward, Places
from anchorscope.engine.work import Item, Trunk, beginning, shared_tokens

SHARERS = 4  # how many sequences have an opening at least; with fewer, there are more openings but hardly more is saved
MOST = 1024  # tokens of openings: they are computed in one pass, before any batch has shown how much memory there is

Tokens = tuple[int, ...]


class Openings:
    """A pool with the tokens that sequences begin with, and where in it those of each sequence are."""

    def __init__(self, model: PreTrainedModel, sequences: Sequence[np.ndarray], last: nn.Module | None = None):
        """With `last`, the model runs no further than that."""
        begun = [tuple(ids.tolist()) for ids in sequences]
        prefix = shared_tokens(begun)
        self.prefix = np.arange(prefix)
        self.past = compute_prefix(model, begun[0][:prefix], last)
        openings = find_openings([ids[prefix:] for ids in begun], MOST)
        self.places: dict[Tokens, np.ndarray] = {}  # in the pool, of each opening
        if openings:
            pack = Pack([trunk(self.prefix, opening) for opening in openings], prefix)
            self.past = extended_past(model, pack, self.past, last)
            for opening, (start,) in zip(openings, pack.starts, strict=False):  # the pack may end with padding
                self.places[opening] = prefix + start + np.arange(len(opening))
        self.lengths = sorted({len(opening) for opening in openings}, reverse=True)

    def known(self, ids: np.ndarray) -> np.ndarray:
        """The pool places of the tokens that one of the sequences begins with, as many as are there."""
        own = tuple(ids[len(self.prefix) :].tolist())
        found = [self.places[own[:length]] for length in self.lengths if own[:length] in self.places]
        return np.concatenate([self.prefix, *found[:1]])


def find_openings(sequences: Sequence[Tokens], most: int) -> list[Tokens]:
    """The longest beginning of each sequence that is also one of `SHARERS` - 1 others, if there is any.

    If they came to more than `most` tokens, more sequences have to share each.
    """
    ordered = sorted(sequences)
    common = np.array([shared_tokens(neighbours) for neighbours in pairwise(ordered)], np.int64)
    sharers = SHARERS
    while sharers <= len(ordered):
        # Sequences with the same beginning follow one another. In a run of them, all begin with what neighbours share.
        of_runs = sliding_window_view(common, sharers - 1).min(1)
        longest = sliding_window_view(np.pad(of_runs, sharers - 1), sharers).max(1)
        found = {ids[:length] for ids, length in zip(ordered, longest.tolist(), strict=True) if length}
        if sum(map(len, found)) <= most:
            return sorted(found)
        sharers *= 2
    return []


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
            branches = range(1, 1 + len(mine[0]) * self.copies)
            yield Forward(
                run=partial(run_decoder, self.model, pack, openings.past),
                places=[self._places(pack, mine, copy) for copy in range(self.copies)],
                of_layer=self.of_layer,
                back=[pack.with_trunk_places(branches[copy :: self.copies]) for copy in range(self.window or 0)],
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
