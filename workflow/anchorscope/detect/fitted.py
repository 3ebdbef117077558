"""Probes of several training sets, with strengths chosen inside each, and what they say about everyone."""

from dataclasses import dataclass

import torch
from torch import Tensor

from anchorscope.detect.trainings import Trainings
from anchorscope.probe.logistic import FittedProbes, fit
from anchorscope.probe.strengths import CLEARLY_WORSE, least, losses_of

# The plain probes are searched as far as those of the main run, and are the same. For all others the search for a
# strength ends with the first group that brings nothing.
WORSE = 1.0


@dataclass(frozen=True)
class Fitted:
    """The probe of each layer and training set."""

    logits: Tensor  # [layers, trainings, examples], of everyone
    strengths: Tensor  # [layers, trainings]
    losses: Tensor  # [layers, trainings]: of the strength that was chosen, on inner folds


def fit_trainings(
    features: Tensor, labels: Tensor, trainings: Trainings, clearly_worse: float = CLEARLY_WORSE
) -> Fitted:
    """Fit probes on features [layers, examples, width]; `labels` are [examples]."""
    losses = losses_of(features, labels, trainings.splits(), clearly_worse)
    strengths = least(losses)
    logits = probes_of(features, labels, trainings.train, strengths).logits(features)
    return Fitted(logits, strengths, losses.amin(0))


def probes_of(features: Tensor, labels: Tensor, train: Tensor, strengths: Tensor) -> FittedProbes:
    """Probes that learn from `train` [probes, examples]. Examples that none learns from are left out of the sums."""
    some = train.any(0)
    return fit(features=features[:, some], labels=labels[some], train=train[:, some], strengths=strengths)


def inner_logits(
    clean: Tensor, labels: Tensor, trainings: Trainings, strengths: Tensor, others: list[Tensor] | None = None
) -> list[Tensor]:
    """What inner probes say about those of their training set whom they never saw: [layers, trainings, examples].

    The probes learn from clean states [layers, examples, width], one for each inner fold of a training set, with the
    strength [layers, trainings] of that set. First come the clean logits, then those of `others`, states of the same
    shape. They are 0 outside the training set.
    """
    numbers, train, held_out = map(list, zip(*trainings.nested(), strict=True))
    probes = probes_of(clean, labels, train=torch.stack(train), strengths=strengths[:, numbers])
    found, place = [], torch.tensor(numbers, device=clean.device)
    for states in [clean, *(others or [])]:
        own = torch.where(torch.stack(held_out), probes.logits(states), 0.0)  # [layers, inner folds, examples]
        found.append(own.new_zeros(len(own), len(trainings), own.shape[2]).index_add_(1, place, own))
    return found
