"""Probes of several training sets: strengths chosen inside each, then fitted together."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from anchorscope.probe.logistic import FittedProbes, fit
from anchorscope.probe.strengths import CLEARLY_WORSE, inner_losses, least
from anchorscope.probe.trainings import Trainings

# The search for the strengths of detection's own readers ends with the first group that brings nothing. So a reader of
# the main run's states may be another than the main run's probe.
NOT_BETTER = 1.0


@dataclass(frozen=True)
class Fitted:
    """The probe of each layer and training set."""

    probes: FittedProbes  # [layers, trainings]
    strengths: Tensor  # [layers, trainings]
    losses: Tensor  # [layers, trainings]: of the strength that was chosen, on inner folds


def fit_trainings(
    features: Tensor,
    labels: Tensor,
    trainings: Trainings,
    clearly_worse: float = CLEARLY_WORSE,
    dtype: torch.dtype | None = None,
) -> Fitted:
    """Choose a strength for each layer of features [layers, examples, width] and each training set, and fit a probe.

    `labels` are [examples]. Probes are fitted in the dtype of the features unless another is given.
    """
    losses = inner_losses(features, labels, trainings, clearly_worse)
    strengths = least(losses)
    probes = probes_of(features.to(dtype or features.dtype), labels, trainings.train, strengths)
    return Fitted(probes, strengths, losses.amin(0))


def read(features: Tensor, labels: Tensor, trainings: Trainings) -> Tensor:
    """What probes of features [layers, examples, width] say about everyone: logits [layers, trainings, examples].

    Their strengths are not searched for as far as elsewhere.
    """
    return fit_trainings(features, labels, trainings, NOT_BETTER).probes.logits(features)


def probes_of(features: Tensor, labels: Tensor, train: Tensor, strengths: Tensor) -> FittedProbes:
    """Probes that learn from `train` [probes, examples]. Examples that none learns from are left out of the sums."""
    some = train.any(0)
    if not some.all():
        features, labels, train = features[:, some], labels[some], train[:, some]
    return fit(features=features, labels=labels, train=train, strengths=strengths)


def inner_logits(
    clean: Tensor, labels: Tensor, trainings: Trainings, strengths: Tensor, others: Sequence[Tensor] = ()
) -> list[Tensor]:
    """What inner probes say about those of their training set whom they never saw: [layers, trainings, examples].

    The probes learn from clean states [layers, examples, width], one for each inner fold of a training set, with the
    strength [layers, trainings] of that set. First come the clean logits, then those of `others`, states of the same
    shape. They are 0 outside the training set.
    """
    numbers, train, held_out = map(list, zip(*trainings.nested(), strict=True))
    probes = probes_of(clean, labels, train=torch.stack(train), strengths=strengths[:, numbers])
    found, place = [], torch.tensor(numbers, device=clean.device)
    for states in [clean, *others]:
        own = torch.where(torch.stack(held_out), probes.logits(states), 0.0)  # [layers, inner folds, examples]
        found.append(own.new_zeros(len(own), len(trainings), own.shape[2]).index_add_(1, place, own))
    return found
