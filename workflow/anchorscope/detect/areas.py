"""How well methods rank hallucinated answers above right ones, and by how much one method is ahead of others."""

import numpy as np

from anchorscope.probe.quality import auc_gain, auc_with_interval


def areas(
    scores: np.ndarray, hallucinated: np.ndarray, clusters: list[str], folds: np.ndarray
) -> dict[str, np.ndarray]:
    """The AUC of scores [methods, examples] with its 95 % interval, each [methods]."""
    return auc_with_interval(scores[None], hallucinated, clusters)


def gains(
    better: np.ndarray, others: np.ndarray, hallucinated: np.ndarray, clusters: list[str], folds: np.ndarray
) -> dict[str, np.ndarray]:
    """How much larger the AUC of `better` [examples] is than those of `others` [methods, examples], with intervals."""
    return auc_gain(better, others, positive=hallucinated, clusters=clusters)
