"""Probes of several training sets: what they learn from, strengths of the penalty, and probes that are fitted together.

A strength is chosen by cross-validation inside a training set, on its inner folds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from anchorscope.probe.logistic import FittedProbes, Marks, fit, log_loss, try_strengths

VALIDATED = 2  # inner folds of a training set on which strengths are chosen
# Strengths of the penalty; those of a group are tried together.
GROUPS = ((64.0, 16.0, 4.0, 1.0), (2.0**-2, 2.0**-4), (2.0**-6, 2.0**-8, 2.0**-10))
STRENGTHS = tuple(strength for group in GROUPS for strength in group)
CLEARLY_WORSE = 1.1  # the search ends with a group whose last loss is so many times the best one
CHOICE_TOLERANCE = 1e-4  # enough to compare losses; the probes that score are solved further
# The search for the strengths of detection's own readers ends with the first group that brings nothing. So a reader of
# the main run's states may be another than the main run's probe.
NOT_BETTER = 1.0


@dataclass(frozen=True)
class InnerSplit:
    """What an inner probe learns from, and whom it is validated on, for each training set that it serves."""

    train: Tensor  # [examples], bool
    validated: dict[int, Tensor]  # by training set: [examples], bool


@dataclass(frozen=True)
class TrainingSets:
    """Some training sets, which are fitted together."""

    train: Tensor  # [training sets, examples], bool
    folds: Tensor  # [examples]: those of a training set are its inner folds
    inner: list[list[int]]  # the inner folds of the first training sets; strengths are chosen on the first of these
    chosen_by: list[list[int]]  # for each training set, those whose inner folds together choose its strength

    def __len__(self) -> int:
        return len(self.train)

    def to(self, device: torch.device) -> "TrainingSets":
        return replace(self, train=self.train.to(device), folds=self.folds.to(device))

    def one(self, number: int) -> "TrainingSets":
        """One of the training sets alone."""
        return TrainingSets(self.train[number : number + 1], self.folds, [self.inner[number]], [[0]])

    def with_halves(self, halves: Tensor) -> "TrainingSets":
        """Behind all, either half of each, which takes the strength of the whole; `halves` are [examples], 0 or 1."""
        parts = [self.train, *(self.train & (halves == half) for half in (0, 1))]
        return replace(self, train=torch.cat(parts), chosen_by=self.chosen_by * len(parts))

    def with_everyone(self) -> "TrainingSets":
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
        for number, within, validated in self.nested(VALIDATED):
            split = found.setdefault(within.cpu().numpy().tobytes(), InnerSplit(within, {}))
            split.validated[number] = validated
        return list(found.values())

    def nested(self, first: int | None = None) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Every inner fold, or so many of each training set: its number, who is left in it, and who is held out.

        The latter two are [examples], bool.
        """
        for number, folds in enumerate(self.inner):
            for fold in folds[:first]:
                inside = self.train[number]
                yield number, inside & (self.folds != fold), inside & (self.folds == fold)


def cross_fitting(folds: Tensor) -> TrainingSets:
    """All examples but one fold, for each fold; strengths are chosen on the two folds beside it."""
    count = int(folds.max()) + 1
    inner = []
    for fold in range(count):
        beside = [(fold + 1) % count, (fold - 1) % count]
        inner.append([*beside, *(other for other in range(count) if other not in (fold, *beside))])
    return TrainingSets(~whom_folds_hold_out(folds), folds, inner, [[fold] for fold in range(count)])


def whole(train: Tensor, folds: Tensor) -> TrainingSets:
    """One training set: the examples of `train`, [examples]."""
    return TrainingSets(train[None], folds, [sorted(folds[train].unique().tolist())], [[0]])


def whom_folds_hold_out(folds: Tensor) -> Tensor:
    """Whom each fold holds out, [folds, examples]."""
    return folds == torch.arange(int(folds.max()) + 1, device=folds.device)[:, None]


def own_fold(scores: Tensor, folds: Tensor) -> Tensor:
    """Each example's score [..., examples] by the set that held it out, from [..., training sets, examples]."""
    return torch.where(whom_folds_hold_out(folds), scores, 0.0).sum(-2)


def choose_strengths(
    features: Tensor | Marks, labels: Tensor, training_sets: TrainingSets, clearly_worse: float = CLEARLY_WORSE
) -> Tensor:
    """The strength with the least loss on inner folds, for each layer and training set: [layers, training sets]."""
    return least(inner_losses(features, labels, training_sets, clearly_worse))


def least(losses: Tensor, strengths: Sequence[float] = STRENGTHS) -> Tensor:
    """The strength [layers, training sets] with the least of some losses [strengths, layers, training sets]."""
    return torch.tensor(strengths, dtype=losses.dtype, device=losses.device)[losses.argmin(0)]


def inner_losses(
    features: Tensor | Marks,
    labels: Tensor,
    training_sets: TrainingSets,
    clearly_worse: float = CLEARLY_WORSE,
    groups: Sequence[Sequence[float]] = GROUPS,
) -> Tensor:
    """The loss by strength, layer and training set, summed over inner folds: [strengths, layers, training sets].

    From features [layers, examples, width]. A strength that is not tried, being clearly worse, has an infinite loss.
    Where several training sets choose for one, its loss is the mean of theirs.
    """
    shape = (sum(map(len, groups)), len(features), len(training_sets.inner))
    losses = torch.zeros(shape, dtype=features.dtype, device=features.device)
    for split in training_sets.splits():
        losses[:, :, list(split.validated)] += _validated(features, labels, split, clearly_worse, groups)
    return torch.stack([losses[..., some].mean(-1) for some in training_sets.chosen_by], dim=-1)


def _validated(
    features: Tensor | Marks, labels: Tensor, split: InnerSplit, clearly_worse: float, groups: Sequence[Sequence[float]]
) -> Tensor:
    """The loss of one inner probe by strength, layer and training set that it serves."""
    among = torch.stack(list(split.validated.values()))[:, ~split.train]
    shape = (sum(map(len, groups)), len(features), len(among))
    losses = torch.full(shape, torch.inf, dtype=features.dtype, device=features.device)
    tried = 0
    for logits in try_strengths(
        features=features, labels=labels, train=split.train, groups=groups, tolerance=CHOICE_TOLERANCE
    ):
        for column in logits.unbind(1):
            losses[tried] = log_loss(column[:, None], labels[~split.train], among)
            tried += 1
        if (losses[tried - 1] > clearly_worse * losses.amin(0)).all():
            break
    return losses


@dataclass(frozen=True)
class Fitted:
    """The probe of each layer and training set."""

    probes: FittedProbes  # [layers, training sets]
    strengths: Tensor  # [layers, training sets]
    losses: Tensor  # [layers, training sets]: of the strength that was chosen, on inner folds


def fit_training_sets(
    features: Tensor | Marks,
    labels: Tensor,
    training_sets: TrainingSets,
    clearly_worse: float = CLEARLY_WORSE,
    dtype: torch.dtype | None = None,
) -> Fitted:
    """Choose a strength for each layer of features [layers, examples, width] and each training set, and fit a probe.

    `labels` are [examples]. Probes are fitted in the dtype of the features unless another is given.
    """
    losses = inner_losses(features, labels, training_sets, clearly_worse)
    strengths = least(losses)
    probes = probes_of(features.to(dtype or features.dtype), labels, training_sets.train, strengths)
    return Fitted(probes, strengths, losses.amin(0))


def read(features: Tensor | Marks, labels: Tensor, training_sets: TrainingSets) -> Tensor:
    """What probes of features [layers, examples, width] say about everyone: logits [layers, training sets, examples].

    Their strengths are not searched for as far as elsewhere.
    """
    return fit_training_sets(features, labels, training_sets, NOT_BETTER).probes.logits(features)


def probes_of(features: Tensor | Marks, labels: Tensor, train: Tensor, strengths: Tensor) -> FittedProbes:
    """Probes that learn from `train` [probes, examples]. Examples that none learns from are left out of the sums."""
    some = train.any(0)
    if not some.all():
        features = features.among(some) if isinstance(features, Marks) else features[:, some]
        labels, train = labels[some], train[:, some]
    return fit(features=features, labels=labels, train=train, strengths=strengths)


def inner_logits(
    clean: Tensor, labels: Tensor, training_sets: TrainingSets, strengths: Tensor, others: Sequence[Tensor] = ()
) -> list[Tensor]:
    """What inner probes say about those of their training set whom they never saw: [layers, training sets, examples].

    The probes learn from clean states [layers, examples, width], one for each inner fold of a training set, with the
    strength [layers, training sets] of that set. First come the clean logits, then those of `others`, states of the
    same shape. They are 0 outside the training set.
    """
    numbers, train, held_out = map(list, zip(*training_sets.nested(), strict=True))
    probes = probes_of(clean, labels, train=torch.stack(train), strengths=strengths[:, numbers])
    found, place = [], torch.tensor(numbers, device=clean.device)
    for states in [clean, *others]:
        own = torch.where(torch.stack(held_out), probes.logits(states), 0.0)  # [layers, inner folds, examples]
        found.append(own.new_zeros(len(own), len(training_sets), own.shape[2]).index_add_(1, place, own))
    return found
