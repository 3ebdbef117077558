"""What a method learns from: training sets among the same examples, each divided into inner folds."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from anchorscope.probe.scores import whom_folds_hold_out
from anchorscope.probe.strengths import InnerSplit

VALIDATED = 2  # inner folds of a training set on which strengths are chosen


@dataclass(frozen=True)
class Trainings:
    """Some training sets, which are fitted together."""

    train: Tensor  # [trainings, examples], bool
    folds: Tensor  # [examples]: those of a training set are its inner folds
    inner: list[list[int]]  # the numbers of each training set's inner folds; strengths are chosen on the first ones

    def __len__(self) -> int:
        return len(self.train)

    def to(self, device: torch.device) -> "Trainings":
        return Trainings(self.train.to(device), self.folds.to(device), self.inner)

    def one(self, number: int) -> "Trainings":
        """One of the training sets alone."""
        return Trainings(self.train[number : number + 1], self.folds, [self.inner[number]])

    def splits(self) -> list[InnerSplit]:
        """The inner probes that choose strengths. Where two would learn from the same examples, one serves both."""
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
    """All examples but one fold, for each fold. Strengths are chosen on the two folds beside it, as by the probes."""
    count = int(folds.max()) + 1
    inner = [[(fold + 1) % count, (fold - 1) % count] for fold in range(count)]
    rest = [[other for other in range(count) if other not in (fold, *inner[fold])] for fold in range(count)]
    return Trainings(
        ~whom_folds_hold_out(folds), folds, [first + other for first, other in zip(inner, rest, strict=True)]
    )


def whole(train: Tensor, folds: Tensor) -> Trainings:
    """One training set: the examples of `train`, [examples]."""
    return Trainings(train[None], folds, [sorted(folds[train].unique().tolist())])


def own_fold(scores: Tensor, folds: Tensor) -> Tensor:
    """Each example's score [..., examples] by the training set that held it out, from [trainings, ..., examples]."""
    held_out = whom_folds_hold_out(folds)
    shape = (len(held_out), *(1 for _ in scores.shape[1:-1]), len(folds))
    return torch.where(held_out.view(shape), scores, torch.zeros((), dtype=scores.dtype)).sum(0)
