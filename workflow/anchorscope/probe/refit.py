"""The probes behind the delta table's `p_clean`, fitted again: their weights are not kept."""

from torch import Tensor

from anchorscope.probe.logistic import FittedProbes, fit
from anchorscope.probe.scores import whom_folds_hold_out
from anchorscope.probe.strengths import choose_strengths


def full_probes(clean: Tensor, hallucinated: Tensor, folds: Tensor) -> FittedProbes:
    """The probe `full` of each layer and fold, from clean states [layers, examples, width] under the first prompt."""
    strengths = choose_strengths(clean, hallucinated.float(), folds)
    return fit(features=clean, labels=hallucinated.float(), train=~whom_folds_hold_out(folds), strengths=strengths)
