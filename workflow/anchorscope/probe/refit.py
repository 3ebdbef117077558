"""The probes behind the delta table's `p_clean`, fitted again: their weights are not kept."""

import torch
from torch import Tensor

from anchorscope.probe.logistic import FittedProbes, fit
from anchorscope.probe.strengths import choose_strengths


def full_probes(clean: Tensor, hallucinated: Tensor, folds: Tensor) -> FittedProbes:
    """The probe `full` of each layer and fold, from clean states [layers, examples, width] under the first prompt."""
    held_out = folds == torch.arange(int(folds.max()) + 1)[:, None]  # [folds, examples]
    strengths = choose_strengths(clean, hallucinated.float(), folds)
    return fit(features=clean, labels=hallucinated.float(), train=~held_out, strengths=strengths)
