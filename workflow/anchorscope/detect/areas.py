"""How well methods rank: AUC within folds, with DeLong's intervals, and differences between methods.

Scores of different folds come from different probes, and under no signal those shift against their own fold's labels:
ranks across folds would put the AUC of a method that knows nothing below one half. So only examples of one fold are
compared with each other. A fold counts by its pairs of a hallucinated and a right answer.
"""

from collections.abc import Sequence

import numpy as np

from anchorscope.probe.quality import influence, standard_error


def areas(
    scores: np.ndarray, hallucinated: np.ndarray, clusters: Sequence[str], folds: np.ndarray
) -> dict[str, np.ndarray]:
    """The AUC of scores [methods, examples], and the ends of its 95 % interval, each [methods]."""
    area, moves = _within_folds(scores, hallucinated, folds)
    error = standard_error(moves, list(clusters))
    return {"auc": area, "auc_low": area - 1.96 * error, "auc_high": area + 1.96 * error}


def gains(
    better: np.ndarray, scores: np.ndarray, hallucinated: np.ndarray, clusters: Sequence[str], folds: np.ndarray
) -> dict[str, np.ndarray]:
    """How much larger the AUC of `better` [examples] is than those of scores [methods, examples], with 95 % intervals.

    DeLong's variance of the difference: both rank the same examples, so each example's influences are subtracted.
    """
    (area,), own = _within_folds(better[None], hallucinated, folds)
    areas, others = _within_folds(scores, hallucinated, folds)
    gain, error = area - areas, standard_error(own - others, list(clusters))
    return {"gain": gain, "gain_low": gain - 1.96 * error, "gain_high": gain + 1.96 * error}


def _within_folds(scores: np.ndarray, hallucinated: np.ndarray, folds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The AUC [methods] over pairs of one fold, and how each example moves it, [methods, examples]."""
    area, moves, pairs = np.zeros(len(scores)), np.zeros(scores.shape), 0
    for fold in np.unique(folds):
        mine = folds == fold
        positive = hallucinated[mine]
        count = int(positive.sum() * (~positive).sum())
        if count:
            found, moved = influence(scores[:, mine], positive)
            area += count * found
            moves[:, mine] = count * moved
            pairs += count
    return area / pairs, moves / pairs
