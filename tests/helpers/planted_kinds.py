"""Logits of truths that are known, with and without two kinds of examples: many draws of a run at once.

An example has evidence (its label, and how sure the probe is), a clean logit under each prompt and layer, and a cut
one. The cut logit is a curve of the clean one plus what is left, which has a given correlation between the two prompts
and is shared in part between layers. Numbers are drawn on the processor, so that every machine has the same.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

LAYERS, PROMPTS = 3, 2
STRENGTHS = (0.6, 1.0, 1.0)  # of the evidence that a layer's clean logits carry
SPREAD = 0.8  # of what is left
COMMON = 0.7  # the part of the variance of what is left that layers share
FORMS = 0.35  # the share of examples whose question is of the form that loses its evidence


@dataclass(frozen=True)
class Planted:
    """Draws of one truth."""

    clean: Tensor  # [draws, layers, prompts, examples]
    cut: Tensor
    lost: Tensor  # [draws, examples], bool: of the kind that loses its evidence; none without kinds


class _Draw:
    """What every truth is made of: `draws` runs of `count` examples."""

    def __init__(self, draws: int, count: int, correlation: float, seed: int):
        self.random = torch.Generator().manual_seed(seed)
        self.shape, self.correlation = (draws, LAYERS, PROMPTS, count), correlation
        self.examples = (draws, 1, 1, count)
        self.wrong = torch.arange(count) % 2 == 1
        self.evidence = torch.where(self.wrong, 1.2, -1.2) + 1.5 * self.normal(self.examples)
        self.clean = self.seen(self.evidence)

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        return torch.randn(shape, generator=self.random, dtype=torch.float64)

    def uniform(self, shape: tuple[int, ...]) -> Tensor:
        return torch.rand(shape, generator=self.random, dtype=torch.float64)

    def seen(self, evidence: Tensor) -> Tensor:
        """The clean logits that probes of each layer and prompt read from the evidence."""
        return torch.tensor(STRENGTHS, dtype=torch.float64)[:, None, None] * evidence + 0.3 * self.normal(self.shape)

    def left(self) -> Tensor:
        """What is left, with variance one and the given correlation between prompts."""
        draws, layers, prompts, count = self.shape

        def correlated(layers: int) -> Tensor:
            own, both = self.normal((draws, layers, prompts, count)), self.normal((draws, layers, 1, count))
            return (1 - self.correlation) ** 0.5 * own + self.correlation**0.5 * both

        return COMMON**0.5 * correlated(1) + (1 - COMMON) ** 0.5 * correlated(layers)

    def chi(self, shape: tuple[int, ...], freedom: int) -> Tensor:
        """Factors that make normal numbers those of Student's t with variance one."""
        squares = sum(self.normal(shape) ** 2 for _ in range(freedom))
        return (freedom / squares * (freedom - 2) / freedom) ** 0.5

    def kinds(self, lost: Tensor) -> tuple[Tensor, Tensor]:
        """Kept evidence along a rising line, lost evidence along a flat one, as far apart as on HotpotQA."""
        return torch.where(lost, 1.7, 0.6 + 0.85 * self.clean) + SPREAD * self.left(), lost


Cut = tuple[Tensor, Tensor | None]  # cut logits, and who lost


def _one(draw: _Draw) -> Cut:
    return 0.9 + 0.6 * draw.clean + SPREAD * draw.left(), None


def _degrees(draw: _Draw) -> Cut:
    return 0.9 + 0.8 * draw.clean + 1.2 * draw.normal(draw.examples) + SPREAD * draw.left(), None


def _heavy_examples(draw: _Draw) -> Cut:
    return 0.9 + 0.6 * draw.clean + SPREAD * draw.left() * draw.chi(draw.examples, 3), None


def _heavy_passes(draw: _Draw) -> Cut:
    return 0.9 + 0.6 * draw.clean + SPREAD * draw.left() * draw.chi(draw.shape, 3), None


def _growing(draw: _Draw) -> Cut:
    return 0.9 + 0.6 * draw.clean + (0.4 + 0.25 * draw.clean.abs()) * draw.left(), None


def _slopes(draw: _Draw) -> Cut:
    return 0.9 + (0.2 + 0.8 * draw.uniform(draw.examples)) * draw.clean + SPREAD * draw.left(), None


def _unlike_labels(draw: _Draw) -> Cut:
    return 0.9 + 0.6 * draw.clean + torch.where(draw.wrong, 1.1, 0.5) * draw.left(), None


def _curved(draw: _Draw) -> Cut:
    return 1 + 0.4 * draw.clean + 0.08 * draw.clean**2 + SPREAD * draw.left(), None


def _saturating(draw: _Draw) -> Cut:
    return 0.5 + 2 * torch.tanh(draw.clean / 2) + SPREAD * draw.left(), None


def _two_spreads(draw: _Draw) -> Cut:
    """Some examples stray much further from the same line."""
    return 0.9 + 0.6 * draw.clean + torch.where(draw.uniform(draw.examples) < 0.3, 1.6, 0.4) * draw.left(), None


def _clouds(draw: _Draw) -> Cut:
    """A tight cloud of what is kept unchanged, and a wide one of what is lost."""
    lost = draw.uniform(draw.examples) < 0.4
    return torch.where(lost, 0.8 + 1.2 * draw.left(), draw.clean + 0.4 * draw.left()), lost


def _share(share: float) -> Callable[[_Draw], Cut]:
    return lambda draw: draw.kinds(draw.uniform(draw.examples) < share)


def _forms(draw: _Draw) -> Cut:
    """The kind is the form of the question, and the probe reads the form as evidence, too."""
    lost = draw.uniform(draw.examples) < FORMS
    draw.clean = draw.seen(draw.evidence + torch.where(lost, -0.8, 0.4))
    return draw.kinds(lost)


WITHOUT_KINDS: dict[str, Callable[[_Draw], Cut]] = {
    "one mechanism": _one,
    "degrees": _degrees,
    "heavy tails, by example": _heavy_examples,
    "heavy tails, by pass": _heavy_passes,
    "spread that grows": _growing,
    "slopes spread evenly": _slopes,
    "spread unlike in right and wrong": _unlike_labels,
    "a curved line": _curved,
    "a saturating line": _saturating,
    "two spreads around one line": _two_spreads,
}
WITH_KINDS: dict[str, Callable[[_Draw], Cut]] = {
    "10 % lost": _share(0.10),
    "25 % lost": _share(0.25),
    "50 % lost": _share(0.50),
    "lost by form": _forms,
    "a tight and a wide cloud": _clouds,
}


def planted(truth: str, draws: int, count: int, correlation: float, seed: int) -> Planted:
    """Draws of a truth by its name."""
    draw = _Draw(draws, count, correlation, seed)
    cut, lost = (WITHOUT_KINDS | WITH_KINDS)[truth](draw)
    nobody = torch.zeros((draws, count), dtype=torch.bool)
    return Planted(draw.clean, cut, nobody if lost is None else lost[:, 0, 0])
