"""What the engine can be asked for: variants of sequences with what is read of them, continuations, and flows."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Bias:
    """What is added to attention's scores in every layer: to those of each key, for the queries from `start` on."""

    start: int
    of_keys: np.ndarray  # [tokens]

    def on(self, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """What is added to the scores of tokens at these positions: [1, queries, keys], or with heads in place of 1."""
        known = np.append(self.of_keys, np.float32(0))  # nothing to tokens beyond
        return ((queries >= self.start)[:, None] * known[np.minimum(keys, len(self.of_keys))])[None]


@dataclass(frozen=True, slots=True)
class Variant:
    """One sequence: its tokens, at which of them it is read, and how its attention is changed.

    A token that is cut is hidden from every later one that is not cut itself.
    """

    ids: np.ndarray
    read: list[int]
    cut: list[int] = field(default_factory=list)
    bias: Bias | None = None

    def __post_init__(self) -> None:
        if not set(self.read).isdisjoint(self.cut):
            raise ValueError("A token that is cut cannot be read: it is left out of the computation.")

    def fork(self, trunk: np.ndarray) -> int:
        """The first token from which on something differs from the unchanged trunk."""
        first = min([len(self.ids), *self.cut, *([] if self.bias is None else [self.bias.start])])
        if self.ids is trunk:
            return first
        both = min(len(self.ids), len(trunk))
        other = (self.ids[:both] != trunk[:both]).nonzero()[0]
        return min([first, both, *other[:1].tolist()])


Trunk = list[Variant]  # variants that begin alike; what they share is computed once
Item = list[Trunk]  # of one example


@dataclass(frozen=True)
class Work:
    """Items of one form, and what is read of them: components in layers, at the tokens that the variants name."""

    items: Sequence[Item]
    components: Sequence[str]
    layers: Sequence[int]
    window: int | None = None  # in how many layers up to the one that is read tokens are cut; None for all of them
    # Whether vectors stand item by item, which may then be read at different numbers of tokens; else, all items of the
    # first token that is read stand before those of the next.
    by_item: bool = False


@dataclass(frozen=True)
class Prompts:
    """Prompts, and how they are continued: up to and including a stop token."""

    prompts: list[list[int]]
    stops: Tensor  # boolean [vocabulary]
    max_new_tokens: int
    # [prompts, samples, tokens], at least 0 and below 1: each draws one token at temperature 1. None for one greedy
    # continuation of each.
    uniforms: Tensor | None = None

    @property
    def copies(self) -> int:
        """How many continuations each prompt has."""
        return 1 if self.uniforms is None else self.uniforms.shape[1]


@dataclass
class Said:
    """An answer: its tokens, stop token included, and of each how sure the model was."""

    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)  # natural logarithm of the token's probability
    entropies: list[float] = field(default_factory=list)  # of the distribution that it was chosen from, in nats


@dataclass(frozen=True)
class Route:
    """A sequence up to the token that is read, the first of the queries, which go on to its end, and sets of keys."""

    ids: np.ndarray
    start: int
    keys: list[list[int]]  # one list for each flow


@dataclass(frozen=True)
class Probes:
    """Of each row the probe whose loss is differentiated: logit = state . weight + bias."""

    weight: Tensor  # [layers, rows, width]
    bias: Tensor  # [layers, rows]

    def loss(self, layer: int, states: Tensor) -> Tensor:
        """The summed log loss of the probes' own verdicts on states [rows, width]."""
        logits = (states * self.weight[layer].to(states.device)).sum(-1) + self.bias[layer].to(states.device)
        return F.softplus(-logits.abs()).sum()


@dataclass(frozen=True)
class Verdicts:
    """The probes whose verdicts are differentiated, at some layers, and what they read, in the order of the routes."""

    layers: list[int]
    probes: Probes  # of each route
    states: Tensor  # that they read, as they were stored: [layers, routes, width]
    rounding: float  # how far rounding moved these, relative to them

    def of(self, batch: list[int]) -> Probes:
        return Probes(self.probes.weight[:, batch], self.probes.bias[:, batch])


def beginning(trunk: Trunk) -> np.ndarray:
    """The tokens of variants before any that is read: only these need not be computed with them."""
    return trunk[0].ids[: min(min(variant.read) for variant in trunk)]


def shared_tokens(sequences: Sequence[list[int]] | Sequence[tuple[int, ...]]) -> int:
    """How many leading tokens all sequences have in common: as many as the first and the last in their order."""
    first, last = min(sequences), max(sequences)
    return next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
