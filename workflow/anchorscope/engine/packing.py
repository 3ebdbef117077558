"""Many short sequences in one forward pass, without padding and without computing a token twice.

A tree is one sequence, its trunk, and the variants of it that an intervention makes. A branch leaves
the trunk at its fork: it sees the trunk's tokens before the fork and its own after it. Tokens of all
trees stand one after another in one pack; who may see whom is kept beside it.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

# The position of a pad: later than any query, so that none ever sees it.
NOWHERE = 2**30
# A pack is filled up to a multiple of one of these: matrix libraries keep something for every shape they have met.
FINE, COARSE = 8, 64


@dataclass(frozen=True)
class Branch:
    """Tokens to compute, where each stands in its sequence, and how many of the trunk's tokens come before them."""

    tokens: np.ndarray
    positions: np.ndarray
    fork: int


@dataclass(frozen=True)
class Tree:
    """The first branch is the trunk's own new tokens; `known` are the pool places of the trunk's earlier ones."""

    known: np.ndarray
    branches: list[Branch]

    @property
    def size(self) -> int:
        return sum(len(branch.tokens) for branch in self.branches)


class Pack:
    """Trees packed for one forward pass; `known` tokens are in the pool already, new ones follow at its end."""

    def __init__(self, trees: list[Tree], pool: int):
        self.size = sum(tree.size for tree in trees)
        spare = -self.size % (COARSE if self.size > 4 * COARSE else FINE)
        self.trees = [*trees, trunk([], [0] * spare)] if spare else trees
        self.pool = pool  # tokens in the pool before this pass
        branches = [branch for tree in self.trees for branch in tree.branches]
        self.tokens = np.concatenate([branch.tokens for branch in branches])
        self.positions = np.concatenate([branch.positions for branch in branches])
        self.longest = int(self.positions.max()) + 1
        ends = np.cumsum([len(branch.tokens) for branch in branches]).tolist()
        starts = iter([0, *ends])
        self.starts = [[next(starts) for _ in tree.branches] for tree in self.trees]  # of each branch in the pack
        self._on: dict[torch.device, Placed] = {}

    def on(self, device: torch.device) -> "Placed":
        """The same pack with its indices on `device`."""
        if device not in self._on:
            self._on[device] = Placed(self.trees, self.starts, pool=self.pool, device=device)
        return self._on[device]

    def places(self, tree: int, branch: int, positions: list[int]) -> list[int]:
        """Where the tokens at these positions of a branch's sequence stand in the pack."""
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
    """The array on a device, without waiting for what the device is doing."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


class Placed:
    """What attention needs of a pack, as tensors on one device."""

    def __init__(self, trees: list[Tree], starts: list[list[int]], pool: int, device: torch.device):
        self.trees = trees
        self.starts = starts
        self.pool = pool
        self.device = device
        self._masks: dict[int | None, Tensor] = {}

    def _tensor(self, array: np.ndarray) -> Tensor:
        return to_device(array, self.device)

    @cached_property
    def ragged(self) -> tuple[Tensor, Tensor, Tensor, int, int]:
        """For a kernel of ragged sequences: each branch's key places end to end, where the queries and keys of
        each branch begin, and the longest of both."""
        new = self.pool + np.arange(sum(tree.size for tree in self.trees))
        trunks = [
            part
            for tree, starts in zip(self.trees, self.starts, strict=True)
            for part in (tree.known, new[starts[0] : starts[0] + len(tree.branches[0].tokens)])
        ]
        ends = np.cumsum([len(part) for part in trunks])[1::2].tolist()
        places = np.concatenate([*trunks, new])
        starts, lengths = [], []  # for each branch, its stretch of the trunk and its own tokens among these places
        for tree, own, begin in zip(self.trees, self.starts, [0, *ends], strict=False):
            for branch, start in zip(tree.branches, own, strict=True):
                if len(branch.tokens):
                    starts += (begin, ends[-1] + start)
                    lengths += (branch.fork, len(branch.tokens))
        queries = np.array(lengths[1::2])
        seen = queries + lengths[0::2]
        keys = places[_stretches(np.array(starts), np.array(lengths))]
        bounds = [np.concatenate([[0], np.cumsum(counts)]).astype(np.int32) for counts in (queries, seen)]
        return (self._tensor(keys), *map(self._tensor, bounds), int(queries.max()), int(seen.max()))

    @cached_property
    def padded(self) -> tuple[Tensor, Tensor, Tensor]:
        """For a kernel of equal sequences, a tree each: query places [trees, queries], key places [trees, keys],
        and where each packed token stands among the padded queries [tokens]."""
        sizes = [tree.size for tree in self.trees]
        ends = np.cumsum(sizes)
        width = _rounded(max(sizes))
        queries = np.zeros((len(sizes), width), np.int64)
        keys = np.zeros((len(sizes), _rounded(max(len(tree.known) + tree.size for tree in self.trees))), np.int64)
        back = []
        for index, (tree, size, end) in enumerate(zip(self.trees, sizes, ends, strict=True)):
            own = np.arange(end - size, end)
            queries[index, :size] = own
            keys[index, : len(tree.known) + size] = np.concatenate([tree.known, self.pool + own])
            back.append(index * width + np.arange(size))
        return self._tensor(queries), self._tensor(keys), self._tensor(np.concatenate(back))

    @cached_property
    def _who(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Branch, position and fork of each padded query, branch and position of each padded key."""
        shape = [tensor.shape for tensor in self.padded[:2]]
        query_branch, query_position, query_fork = (np.zeros(shape[0], np.int64) for _ in range(3))
        key_branch, key_position = np.zeros(shape[1], np.int64), np.full(shape[1], NOWHERE)
        for index, tree in enumerate(self.trees):
            counts = [len(branch.tokens) for branch in tree.branches]
            numbers = np.repeat(np.arange(len(counts)), counts)
            positions = np.concatenate([branch.positions for branch in tree.branches])
            old, new = len(tree.known), len(tree.known) + tree.size
            query_branch[index, : tree.size] = numbers
            query_position[index, : tree.size] = positions
            query_fork[index, : tree.size] = np.repeat([branch.fork for branch in tree.branches], counts)
            key_branch[index, old:new] = numbers
            key_position[index, :old] = np.arange(old)
            key_position[index, old:new] = positions
        return tuple(map(self._tensor, (query_branch, query_position, query_fork, key_branch, key_position)))

    def mask(self, sliding: int | None) -> Tensor:
        """Which query may see which key, boolean [trees, 1, queries, keys].

        With `sliding` a token sees only so many tokens up to itself. Layers that agree on it share a mask.
        """
        if sliding not in self._masks:
            self._masks[sliding] = self._mask(sliding)
        return self._masks[sliding]

    def _mask(self, sliding: int | None) -> Tensor:
        query_branch, query_position, query_fork, key_branch, key_position = self._who
        query_branch, query_position, query_fork = (
            tensor[:, :, None] for tensor in (query_branch, query_position, query_fork)
        )
        key_branch, key_position = key_branch[:, None, :], key_position[:, None, :]
        mask = (key_branch == query_branch) & (key_position <= query_position)
        mask |= (key_branch == 0) & (key_position < query_fork)
        if sliding is not None:
            mask &= query_position - key_position < sliding
        return mask[:, None]


def _stretches(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """start, start + 1, ... of each stretch, end to end."""
    ends = np.cumsum(lengths)
    return np.repeat(starts - ends + lengths, lengths) + np.arange(ends[-1])


def _rounded(size: int) -> int:
    return -(-size // FINE) * FINE


def trunk(known: np.ndarray | list[int], tokens: np.ndarray | list[int]) -> Tree:
    """A tree of one branch: new tokens after those at the pool places `known`."""
    places = np.asarray(known, np.int64)
    positions = np.arange(len(places), len(places) + len(tokens))
    return Tree(places, [Branch(np.asarray(tokens, np.int64), positions, len(places))])
