"""How well methods rank: AUC within folds, with DeLong's intervals, and differences between methods.

Scores of different folds come from different probes. Ranks across folds would put the AUC of a method that knows
nothing below one half, so only examples of one fold are compared with each other. A fold counts by its pairs of a
hallucinated and a right answer.

DeLong's variance takes a method as given. But methods learn from the other folds: where two folds agree by chance, each
is ranked well by what was learnt from the other, and the agreement counts twice. Without a signal this doubles the
variance, and a method that learns in two steps has a little more. With one it matters less and less, because all folds
then teach the same. So the variance is 2.5 times DeLong's where one half cannot be ruled out under that. Beyond, what
is added falls with the squared distance from one half.
"""

from collections.abc import Sequence

import numpy as np

from anchorscope.probe.quality import area_with_interval, influence, standard_error

Z = 1.96  # standard errors to either end of a 95 % interval
CHANCE = 0.5
TAUGHT = 1.5  # added at chance, in units of DeLong's variance; up to that was seen for methods that learn in two steps


def areas(
    scores: np.ndarray, hallucinated: np.ndarray, clusters: Sequence[str], folds: np.ndarray
) -> dict[str, np.ndarray]:
    """The AUC of scores [methods, examples], and the ends of its 95 % interval, each [methods].

    `folds` are all the same where a method learnt from other examples altogether: then DeLong's variance is enough.
    """
    area, moves = _within_folds(scores, hallucinated, folds)
    error = standard_error(moves, list(clusters))
    if len(np.unique(folds)) > 1:
        away = np.abs(area - CHANCE) / np.maximum((1 + TAUGHT) ** 0.5 * Z * error, 1e-12)  # 1: just ruled out
        error = error * np.sqrt(1 + TAUGHT / np.maximum(away, 1) ** 2)
    return area_with_interval(area, error)


def gains(
    better: np.ndarray, others: np.ndarray, hallucinated: np.ndarray, clusters: Sequence[str], folds: np.ndarray
) -> dict[str, np.ndarray]:
    """How much larger the AUC of `better` [examples] is than those of `others` [methods, examples]: 95 % intervals.

    DeLong's variance of the difference: both rank the same examples, so each example's influences are subtracted.
    """
    (area,), own = _within_folds(better[None], hallucinated, folds)
    rivals, moves = _within_folds(others, hallucinated, folds)
    gain, error = area - rivals, standard_error(own - moves, list(clusters))
    return {"gain": gain, "gain_low": gain - Z * error, "gain_high": gain + Z * error}


def _within_folds(scores: np.ndarray, hallucinated: np.ndarray, folds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The AUC [methods] over pairs of one fold, and how each example moves it, [methods, examples].

    A class of few examples varies more than their spread shows: by n / (n - 1), in each fold.
    """
    area, moves, pairs = np.zeros(len(scores)), np.zeros(scores.shape), 0
    for fold in np.unique(folds):
        mine = folds == fold
        positive = hallucinated[mine]
        wrong, right = int(positive.sum()), int((~positive).sum())
        if wrong and right:
            found, moved = influence(scores[:, mine], positive)
            few = np.where(positive, wrong / max(1, wrong - 1), right / max(1, right - 1))
            area += wrong * right * found
            moves[:, mine] = wrong * right * moved * np.sqrt(few)
            pairs += wrong * right
    return area / pairs, moves / pairs
