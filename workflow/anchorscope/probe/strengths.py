"""How strongly probes are penalised: chosen by cross-validation inside their training sets."""

from collections.abc import Sequence

import torch
from torch import Tensor

from anchorscope.probe.logistic import log_loss, try_strengths
from anchorscope.probe.trainings import InnerSplit, Trainings

# Strengths of the penalty; those of a group are tried together.
GROUPS = ((64.0, 16.0, 4.0, 1.0), (2.0**-2, 2.0**-4), (2.0**-6, 2.0**-8, 2.0**-10))
STRENGTHS = tuple(strength for group in GROUPS for strength in group)
CLEARLY_WORSE = 1.1  # the search ends with a group whose last loss is so many times the best one
CHOICE_TOLERANCE = 1e-4  # enough to compare losses; the probes that score are solved further


def choose_strengths(
    features: Tensor, labels: Tensor, trainings: Trainings, clearly_worse: float = CLEARLY_WORSE
) -> Tensor:
    """The strength with the least loss on inner folds, for each layer and training set: [layers, trainings]."""
    return least(inner_losses(features, labels, trainings, clearly_worse))


def least(losses: Tensor, strengths: Sequence[float] = STRENGTHS) -> Tensor:
    """The strength [layers, trainings] with the least of some losses [strengths, layers, trainings]."""
    return torch.tensor(strengths, dtype=losses.dtype, device=losses.device)[losses.argmin(0)]


def inner_losses(
    features: Tensor,
    labels: Tensor,
    trainings: Trainings,
    clearly_worse: float = CLEARLY_WORSE,
    groups: Sequence[Sequence[float]] = GROUPS,
) -> Tensor:
    """The loss by strength, layer and training set, summed over inner folds: [strengths, layers, trainings].

    From features [layers, examples, width]. A strength that is not tried, being clearly worse, has an infinite loss.
    Where several training sets choose for one, its loss is the mean of theirs.
    """
    shape = (sum(map(len, groups)), len(features), len(trainings.inner))
    losses = torch.zeros(shape, dtype=features.dtype, device=features.device)
    for split in trainings.splits():
        losses[:, :, list(split.validated)] += _validated(features, labels, split, clearly_worse, groups)
    return torch.stack([losses[..., some].mean(-1) for some in trainings.chosen_by], dim=-1)


def _validated(
    features: Tensor, labels: Tensor, split: InnerSplit, clearly_worse: float, groups: Sequence[Sequence[float]]
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
