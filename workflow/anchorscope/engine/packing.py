"""Many short sequences in one forward pass, without padding and without computing a token twice.

A tree is one sequence, its trunk, and the variants that interventions make of it, its branches. A branch leaves the
trunk at its fork: it sees the trunk's tokens before the fork and its own after it. The tokens of all trees follow one
another in one pack, which also knows which token may see which.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from anchorscope.engine.work import Bias

# The position of padding: later than any query, so that none sees it.
NOWHERE = 2**30
# A pack is filled up to a multiple of one of these: matrix libraries keep memory for every shape they have seen.
FINE, COARSE = 8, 64


@dataclass(frozen=True)
class Branch:
    """Tokens to compute, their positions in the sequence, and how many of the trunk's tokens come before them."""

    tokens: np.ndarray
    positions: np.ndarray
    fork: int
    bias: Bias | None = None  # of these tokens' attention


@dataclass(frozen=True)
class Tree:
    """The first branch holds the trunk's new tokens; `known` are the pool places of its earlier ones."""

    known: np.ndarray
    branches: list[Branch]

    @property
    def size(self) -> int:
        return sum(len(branch.tokens) for branch in self.branches)


class Pack:
    """Trees packed for one forward pass. `known` tokens are in the pool already; new ones are added at its end."""

    def __init__(self, trees: list[Tree], pool: int):
        self.size = sum(tree.size for tree in trees)
        spare = -self.size % (COARSE if self.size > 4 * COARSE else FINE)
        self.trees = [*trees, trunk([], [0] * spare)] if spare else trees
        self.pool = pool  # tokens in the pool before this pass
        branches = [branch for tree in self.trees for branch in tree.branches]
        self.tokens = np.concatenate([branch.tokens for branch in branches])
        self.positions = np.concatenate([branch.positions for branch in branches])
        self.longest = int(self.positions.max()) + 1
        self.biased = any(branch.bias is not None for branch in branches)
        starts = iter([0, *np.cumsum([len(branch.tokens) for branch in branches]).tolist()])
        self.starts = [[next(starts) for _ in tree.branches] for tree in self.trees]  # of each branch in the pack
        self._on: dict[torch.device, Placed] = {}

    def on(self, device: torch.device) -> "Placed":
        """The same pack with its indices on `device`."""
        if device not in self._on:
            self._on[device] = Placed(self.trees, self.starts, self.pool, device)
        return self._on[device]

    def places(self, tree: int, branch: int, positions: list[int]) -> list[int]:
        """Where in the pack the tokens at these positions of a branch's sequence are."""
        starts, branches = self.starts[tree], self.trees[tree].branches
        own, trunk = branches[branch], branches[0]
        return [
            starts[branch] + place if position >= own.fork else starts[0] + position - int(trunk.positions[0])
            for position, place in zip(positions, own.positions.searchsorted(positions).tolist(), strict=True)
        ]

    def with_trunk_places(self, branches: range) -> tuple[np.ndarray, np.ndarray]:
        """The packed tokens of these branches of every tree, and the trunk's tokens at the same positions."""
        own, clean = [], []
        for tree, starts in zip(self.trees, self.starts, strict=True):
            for branch in branches[: len(tree.branches) - 1]:
                positions = tree.branches[branch].positions
                own.append(starts[branch] + np.arange(len(positions)))
                clean.append(starts[0] + positions - tree.branches[0].positions[0])
        return np.concatenate(own), np.concatenate(clean)


def to_device(array: np.ndarray, device: torch.device) -> Tensor:
    """The array on a device, without waiting for the device to finish its work."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def laid_out(biases: dict[tuple[int, int], np.ndarray], shape: tuple[int, int, int], device: torch.device) -> Tensor:
    """Biases [1 or heads, some queries, keys], by row and first query, in one tensor: [rows, 1 or heads, ...]."""
    rows, queries, keys = shape
    added = np.zeros((rows, max(map(len, biases.values()), default=1), queries, keys), np.float32)
    for (row, start), own in biases.items():
        added[row, :, start : start + own.shape[1]] = own
    return to_device(added, device)


class Padded:
    """Some trees of a pack as sequences of one length, for a kernel that takes no others."""

    def __init__(self, trees: list[Tree], starts: list[int], pool: int, device: torch.device):
        """`starts` are the places of the trees' first tokens in the pack."""
        self.trees = trees
        self.own = [np.arange(start, start + tree.size) for start, tree in zip(starts, trees, strict=True)]
        self.width = _width(max(tree.size for tree in trees))
        # Of each padded query its place in the pack, branch, position and fork, [4, trees, queries]; of each key its
        # place in the pool, branch and position, [3, trees, keys].
        queries = np.zeros((4, len(trees), self.width), np.int64)
        keys = np.zeros((3, len(trees), _rounded(max(len(tree.known) + tree.size for tree in trees))), np.int64)
        keys[2] = NOWHERE
        for index, (tree, own) in enumerate(zip(trees, self.own, strict=True)):
            counts = [len(branch.tokens) for branch in tree.branches]
            branches = np.repeat(np.arange(len(counts)), counts)
            positions = np.concatenate([branch.positions for branch in tree.branches])
            forks = np.repeat([branch.fork for branch in tree.branches], counts)
            old, new = len(tree.known), len(tree.known) + tree.size
            queries[:, index, : tree.size] = own, branches, positions, forks
            keys[:, index, :old] = tree.known, np.zeros(old), np.arange(old)
            keys[:, index, old:new] = pool + own, branches, positions
        self.queries, self.keys = to_device(queries, device), to_device(keys, device)
        self._masks: dict[tuple[int | None, torch.dtype | None], Tensor] = {}

    def mask(self, sliding: int | None, dtype: torch.dtype | None = None) -> Tensor:
        """Which query may see which key, boolean [trees, 1, queries, keys].

        With a dtype, what is added to the scores instead, [trees, 1 or heads, queries, keys]: a branch's bias, or -inf
        where it hides. With `sliding` a token sees only so many tokens up to itself. Layers that agree share a mask.
        """
        if (sliding, dtype) not in self._masks:
            self._masks[sliding, dtype] = (
                self._seen(sliding)
                if dtype is None
                else self._bias.to(dtype).masked_fill(~self.mask(sliding), -torch.inf)
            )
        return self._masks[sliding, dtype]

    def _seen(self, sliding: int | None) -> Tensor:
        query_branch, query_position, query_fork = self.queries[1:, :, :, None]
        key_branch, key_position = self.keys[1:, :, None, :]
        mask = (key_branch == query_branch) & (key_position <= query_position)
        mask |= (key_branch == 0) & (key_position < query_fork)
        if sliding is not None:
            mask &= query_position - key_position < sliding
        return mask[:, None]

    @cached_property
    def _bias(self) -> Tensor:
        """[trees, 1 or heads, queries, keys]"""
        keys = self.keys[2].cpu().numpy()
        found: dict[tuple[int, int], np.ndarray] = {}  # by tree and first query
        for number, tree in enumerate(self.trees):
            start = 0
            for branch in tree.branches:
                if branch.bias is not None:
                    found[number, start] = branch.bias.on(branch.positions, keys[number])
                start += len(branch.tokens)
        return laid_out(found, (len(self.trees), self.width, keys.shape[1]), self.keys.device)


class Ragged(NamedTuple):
    """Sequences of different lengths. The queries of each are the last of its keys."""

    key_places: Tensor  # of each sequence, end to end, in the pool
    query_bounds: Tensor  # where the queries of each begin, and where those of the last end
    key_starts: Tensor  # where the key places of each begin
    key_counts: Tensor  # and how many they are
    most_queries: int  # of one sequence

    def to(self, device: torch.device) -> "Ragged":
        places, bounds, starts, counts, most = self
        return Ragged(places.to(device), bounds.to(device), starts.to(device), counts.to(device), most)


@dataclass(frozen=True)
class Placed:
    """What attention needs of a pack, as tensors on one device."""

    trees: list[Tree]
    starts: list[list[int]]
    pool: int
    device: torch.device

    @cached_property
    def ragged(self) -> Ragged:
        """The branches as sequences of different lengths."""
        new = self.pool + np.arange(sum(tree.size for tree in self.trees))
        trunks = [
            part
            for tree, starts in zip(self.trees, self.starts, strict=True)
            for part in (tree.known, new[starts[0] : starts[0] + len(tree.branches[0].tokens)])
        ]
        ends = np.cumsum([len(part) for part in trunks])[1::2].tolist()
        places = np.concatenate([*trunks, new])
        # For each branch, its stretch of the trunk and its own tokens among these places.
        stretches: list[tuple[int, int]] = []
        for tree, own, begin in zip(self.trees, self.starts, [0, *ends], strict=False):
            for branch, start in zip(tree.branches, own, strict=True):
                if len(branch.tokens):
                    stretches += ((begin, branch.fork), (ends[-1] + start, len(branch.tokens)))
        begins, lengths = np.array(stretches).T
        queries = lengths[1::2]
        seen = queries + lengths[0::2]
        return Ragged(
            key_places=to_device(places[_end_to_end(begins, lengths)], self.device),
            query_bounds=to_device(np.append(0, np.cumsum(queries)), self.device),
            key_starts=to_device(np.cumsum(seen) - seen, self.device),
            key_counts=to_device(seen, self.device),
            most_queries=int(queries.max()),
        )

    @cached_property
    def padded(self) -> list[Padded]:
        """The trees in groups of which each is padded to one length.

        A GPU has them all in one. A processor takes its time for padding too, so its groups are of similar size.
        """
        widths = [_width(tree.size) if self.device.type == "cpu" else 0 for tree in self.trees]
        groups = [[index for index, own in enumerate(widths) if own == width] for width in dict.fromkeys(widths)]
        return [
            Padded([self.trees[i] for i in some], [self.starts[i][0] for i in some], self.pool, self.device)
            for some in groups
        ]

    @cached_property
    def back(self) -> Tensor:
        """Where each packed token is among the padded queries of all groups, [tokens]."""
        back = np.empty(sum(tree.size for tree in self.trees), np.int64)
        begin = 0
        for group in self.padded:
            for own in group.own:
                back[own] = begin + np.arange(len(own))
                begin += group.width
        return to_device(back, self.device)


def _end_to_end(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """start, start + 1, ... of each stretch, end to end."""
    ends = np.cumsum(lengths)
    return np.repeat(starts - ends + lengths, lengths) + np.arange(ends[-1])


def _rounded(size: int) -> int:
    return -(-size // FINE) * FINE


def _width(size: int) -> int:
    """How many queries trees of a size are padded to. One token each, as when answers are written, needs no padding."""
    return 1 if size == 1 else _rounded(size)


def trunk(known: np.ndarray | Sequence[int], tokens: np.ndarray | Sequence[int]) -> Tree:
    """A tree of one branch: new tokens after those at the pool places `known`."""
    places = np.asarray(known, np.int64)
    positions = np.arange(len(places), len(places) + len(tokens))
    return Tree(places, [Branch(np.asarray(tokens, np.int64), positions, len(places))])
