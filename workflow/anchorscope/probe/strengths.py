"""How strongly probes are penalised: chosen by cross-validation inside the training folds."""

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


def least(losses: Tensor) -> Tensor:
    """The strength [layers, folds] with the least of some losses [strengths, layers, folds]."""
    return torch.tensor(STRENGTHS, dtype=losses.dtype, device=losses.device)[losses.argmin(0)]


def inner_losses(clean: Tensor, labels: Tensor, folds: Tensor, clearly_worse: float = CLEARLY_WORSE) -> Tensor:
    """The loss on inner folds by strength, layer and outer fold: [strengths, layers, folds]; infinite if not tried.

    The inner probe that leaves out fold i and the next fold j serves both: outer fold i, validated on j, and outer
    fold j, validated on i. So every outer fold is validated on two of its inner folds.
    """
    count = int(folds.max()) + 1
    losses = torch.zeros(len(STRENGTHS), len(clean), count, dtype=clean.dtype, device=clean.device)
    for i in range(count):
        j = (i + 1) % count
        validated = torch.full_like(losses[:, :, [i, j]], torch.inf)
        train = (folds != i) & (folds != j)
        among = torch.stack([folds == j, folds == i])[:, ~train]
        tried = 0
        for logits in try_strengths(
            features=clean, labels=labels, train=train, groups=GROUPS, tolerance=CHOICE_TOLERANCE
        ):
            for column in logits.unbind(1):
                validated[tried] = log_loss(column[:, None], labels[~train], among)
                tried += 1
            if (validated[tried - 1] > clearly_worse * validated.amin(0)).all():
                break
        losses[:, :, [i, j]] += validated
    return losses
