"""How strongly probes are penalised: chosen by cross-validation inside the training folds."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from anchorscope.probe.logistic import log_loss, try_strengths

# Strengths of the penalty; those of a group are tried together.
GROUPS = ((64.0, 16.0, 4.0, 1.0), (2.0**-2, 2.0**-4), (2.0**-6, 2.0**-8, 2.0**-10))
STRENGTHS = tuple(strength for group in GROUPS for strength in group)
CLEARLY_WORSE = 1.1  # the search ends with a group whose last loss is so many times the best one
CHOICE_TOLERANCE = 1e-4  # enough to compare losses; the probes that score are solved further


def choose_strengths(clean: Tensor, labels: Tensor, folds: Tensor, clearly_worse: float = CLEARLY_WORSE) -> Tensor:
    """The strength with the least loss on inner folds, for each layer and outer fold: [layers, folds]."""
    return least(inner_losses(clean, labels, folds, clearly_worse))


def least(losses: Tensor, strengths: Sequence[float] = STRENGTHS) -> Tensor:
    """The strength [layers, folds] with the least of some losses [strengths, layers, folds]."""
    return torch.tensor(strengths, dtype=losses.dtype, device=losses.device)[losses.argmin(0)]


def inner_losses(clean: Tensor, labels: Tensor, folds: Tensor, clearly_worse: float = CLEARLY_WORSE) -> Tensor:
    """The loss on inner folds by strength, layer and outer fold: [strengths, layers, folds]; infinite if not tried.

    The inner probe that leaves out fold i and the next fold j serves both: outer fold i, validated on j, and outer
    fold j, validated on i. So every outer fold is validated on two of its inner folds.
    """
    count = int(folds.max()) + 1
    pairs = [(i, (i + 1) % count) for i in range(count)]
    splits = [InnerSplit((folds != i) & (folds != j), {i: folds == j, j: folds == i}) for i, j in pairs]
    return losses_of(clean, labels, splits, clearly_worse)


@dataclass(frozen=True)
class InnerSplit:
    """What an inner probe learns from, and whom it is validated on, for each training set that it serves."""

    train: Tensor  # [examples], bool
    validated: dict[int, Tensor]  # by training set: [examples], bool


def losses_of(
    features: Tensor,
    labels: Tensor,
    splits: Sequence[InnerSplit],
    clearly_worse: float = CLEARLY_WORSE,
    groups: Sequence[Sequence[float]] = GROUPS,
) -> Tensor:
    """The loss by strength, layer and training set, summed over splits: [strengths, layers, trainings].

    From features [layers, examples, width]. A strength that is not tried, being clearly worse, has an infinite loss.
    """
    strengths = sum(map(len, groups))
    count = 1 + max(number for split in splits for number in split.validated)
    losses = torch.zeros(strengths, len(features), count, dtype=features.dtype, device=features.device)
    for split in splits:
        served = list(split.validated)
        validated = torch.full_like(losses[:, :, served], torch.inf)
        among = torch.stack(list(split.validated.values()))[:, ~split.train]
        tried = 0
        for logits in try_strengths(
            features=features, labels=labels, train=split.train, groups=groups, tolerance=CHOICE_TOLERANCE
        ):
            for column in logits.unbind(1):
                validated[tried] = log_loss(column[:, None], labels[~split.train], among)
                tried += 1
            if (validated[tried - 1] > clearly_worse * validated.amin(0)).all():
                break
        losses[:, :, served] += validated
    return losses
