"""What probes learn from: training sets among the same examples, and the inner folds on which strengths are chosen."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

VALIDATED = 2  # inner folds of a training set on which strengths are chosen


@dataclass(frozen=True)
class InnerSplit:
    """What an inner probe learns from, and whom it is validated on, for each training set that it serves."""

    train: Tensor  # [examples], bool
    validated: dict[int, Tensor]  # by training set: [examples], bool


@dataclass(frozen=True)
class Trainings:
    """Some training sets, which are fitted together."""

    train: Tensor  # [trainings, examples], bool
    folds: Tensor  # [examples]: those of a training set are its inner folds
    inner: list[list[int]]  # the inner folds of the first training sets; strengths are chosen on the first of these
    chosen_by: list[list[int]]  # for each training set, those whose inner folds together choose its strength

    def __len__(self) -> int:
        return len(self.train)

    def to(self, device: torch.device) -> "Trainings":
        return replace(self, train=self.train.to(device), folds=self.folds.to(device))

    def one(self, number: int) -> "Trainings":
        """One of the training sets alone."""
        return Trainings(self.train[number : number + 1], self.folds, [self.inner[number]], [[0]])

    def with_halves(self, halves: Tensor) -> "Trainings":
        """Behind all, either half of each, which takes the strength of the whole; `halves` are [examples], 0 or 1."""
        parts = [self.train, *(self.train & (halves == half) for half in (0, 1))]
        return replace(self, train=torch.cat(parts), chosen_by=self.chosen_by * len(parts))

    def with_everyone(self) -> "Trainings":
        """Behind all, the set of all examples, whose strength the inner folds of the others choose together."""
        everyone = torch.ones_like(self.train[:1])
        return replace(
            self, train=torch.cat([self.train, everyone]), chosen_by=[*self.chosen_by, list(range(len(self)))]
        )

    def splits(self) -> list[InnerSplit]:
        """The inner probes that choose strengths. Where two would learn from the same examples, one serves both.

        So in cross-fitting, the probe that leaves out fold i and the next fold j serves both: outer fold i, validated
        on j, and outer fold j, validated on i.
        """
        found: dict[bytes, InnerSplit] = {}
        for number, folds in enumerate(self.inner):
            for fold in folds[:VALIDATED]:
                within = self.train[number] & (self.folds != fold)
                split = found.setdefault(within.cpu().numpy().tobytes(), InnerSplit(within, {}))
                split.validated[number] = self.train[number] & (self.folds == fold)
        return list(found.values())

    def nested(self) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Every inner fold: the number of its training set, who is left in it, and who is held out, both [examples]."""
        for number, folds in enumerate(self.inner):
            for fold in folds:
                inside = self.train[number]
                yield number, inside & (self.folds != fold), inside & (self.folds == fold)


def cross_fitting(folds: Tensor) -> Trainings:
    """All examples but one fold, for each fold; strengths are chosen on the two folds beside it."""
    count = int(folds.max()) + 1
    inner = []
    for fold in range(count):
        beside = [(fold + 1) % count, (fold - 1) % count]
        inner.append([*beside, *(other for other in range(count) if other not in (fold, *beside))])
    return Trainings(~whom_folds_hold_out(folds), folds, inner, [[fold] for fold in range(count)])


def whole(train: Tensor, folds: Tensor) -> Trainings:
    """One training set: the examples of `train`, [examples]."""
    return Trainings(train[None], folds, [sorted(folds[train].unique().tolist())], [[0]])


def whom_folds_hold_out(folds: Tensor) -> Tensor:
    """Whom each fold holds out, [folds, examples]."""
    return folds == torch.arange(int(folds.max()) + 1, device=folds.device)[:, None]


def own_fold(scores: Tensor, folds: Tensor) -> Tensor:
    """Each example's score [..., examples] by the training set that held it out, from [..., trainings, examples]."""
    return torch.where(whom_folds_hold_out(folds), scores, 0.0).sum(-2)
