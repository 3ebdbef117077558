"""How good probes are: how well they rank, and how well they are calibrated."""

import numpy as np

from anchorscope.probe.verdicts import sigmoid

CALIBRATION_BINS = 10


def auc(logits: np.ndarray, positive: np.ndarray) -> np.ndarray:
    """Area under the ROC curve [layers] of logits [layers, examples]: how often a positive outranks a negative."""
    return np.array([_wins(row, positive)[positive].mean() for row in logits])


def auc_with_interval(logits: np.ndarray, positive: np.ndarray, clusters: list[str]) -> dict[str, np.ndarray]:
    """`auc` with its 95 % interval, both [layers].

    DeLong's variance, from each example's own share of wins. Shares are summed within a cluster, because its examples
    vary together.
    """
    names, cluster_of = np.unique(np.array(clusters), return_inverse=True)
    areas, errors = [], []
    for row in logits:
        wins = _wins(row, positive)
        area = wins[positive].mean()
        influence = np.where(positive, (wins - area) / positive.sum(), (wins - area) / (~positive).sum())
        together = np.bincount(cluster_of, influence)
        areas.append(area)
        errors.append(np.sqrt((together**2).sum() * len(names) / max(1, len(names) - 1)))
    area, error = np.array(areas), np.array(errors)
    return {"auc": area, "auc_low": area - 1.96 * error, "auc_high": area + 1.96 * error}


def _wins(row: np.ndarray, positive: np.ndarray) -> np.ndarray:
    """Each example's share of comparisons with the other class that come out right; a tie counts half: [examples]."""
    wins = np.empty(len(row))
    for own, sign in ((positive, 1), (~positive, -1)):
        others = np.sort(sign * row[~own])
        ranked = np.searchsorted(others, sign * row[own], "left") + np.searchsorted(others, sign * row[own], "right")
        wins[own] = ranked / 2 / len(others)
    return wins


def calibration_error(logits: np.ndarray, positive: np.ndarray) -> np.ndarray:
    """Expected calibration error of logits [..., examples] over equal-width bins of P."""
    chance = sigmoid(logits)
    which = np.minimum((chance * CALIBRATION_BINS).astype(int), CALIBRATION_BINS - 1)
    error = np.zeros(chance.shape[:-1])
    for index in range(CALIBRATION_BINS):
        inside = which == index
        error += np.abs(np.where(inside, chance - positive, 0).sum(-1))
    return error / chance.shape[-1]
