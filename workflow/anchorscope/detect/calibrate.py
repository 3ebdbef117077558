"""Probabilities for scores that are none: Platt's, one logistic regression on the scores of the training set."""

import torch
from torch import Tensor

from anchorscope.probe.logistic import fit
from anchorscope.probe.strengths import STRENGTHS

PENALTY = STRENGTHS[-1]  # next to nothing, but scores that separate the classes still have a best slope


def platt(known: Tensor, scores: Tensor, labels: Tensor, train: Tensor) -> Tensor:
    """P(hallucinated) of scores [trainings, examples], by a regression on the `known` scores of each training set.

    `known` has the shape of the scores. Of a method that learns, they are those of examples that it had not seen. Both
    classes weigh the same, as for every probe.
    """
    strengths = torch.full((len(train), len(train)), PENALTY)
    fitted = fit(features=known.double()[..., None], labels=labels, train=train, strengths=strengths)
    slope, level = (part.diagonal(dim1=0, dim2=1) for part in (fitted.weight[..., 0], fitted.bias))
    return (slope[:, None] * scores + level[:, None]).sigmoid()
