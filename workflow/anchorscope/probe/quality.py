"""How good probes are: how well they rank, and how well they are calibrated."""

import numpy as np

from anchorscope.probe.verdicts import sigmoid

CALIBRATION_BINS = 10


def auc(logits: np.ndarray, positive: np.ndarray) -> np.ndarray:
    """Area under the ROC curve [layers] of logits [layers, examples]: how often a positive outranks a negative."""
    return np.array([_wins(row, positive)[positive].mean() for row in logits])


def auc_with_interval(logits: np.ndarray, positive: np.ndarray, clusters: list[str]) -> dict[str, np.ndarray]:
    """The mean `auc` of logits [repeats, layers, examples] over repeats, with its 95 % interval, both [layers].

    DeLong's variance, from each example's own share of wins. Shares are summed within a cluster, because its examples
    vary together. How far the repeats differ adds to it. `positive` are the labels, [examples], or those of each
    repeat, [repeats, examples].
    """
    names, cluster_of = np.unique(np.array(clusters), return_inverse=True)
    positives = np.broadcast_to(positive, (len(logits), logits.shape[2]))
    areas, variances = [], []
    for of_layer in logits.swapaxes(0, 1):
        wins = [_wins(row, some) for row, some in zip(of_layer, positives, strict=True)]
        area = np.array([won[some].mean() for won, some in zip(wins, positives, strict=True)])
        influence = [
            (won - one) / np.where(some, some.sum(), (~some).sum())
            for won, one, some in zip(wins, area, positives, strict=True)
        ]
        together = np.bincount(cluster_of, np.mean(influence, axis=0))
        areas.append(area.mean())
        variances.append((together**2).sum() * len(names) / max(1, len(names) - 1) + repeat_variance(area))
    middle, error = np.array(areas), np.sqrt(variances)
    return {"auc": middle, "auc_low": middle - 1.96 * error, "auc_high": middle + 1.96 * error}


def repeat_variance(values: np.ndarray) -> float:
    """The variance of the mean of some repeats' values; nothing where there is only one."""
    return float(values.var(ddof=1)) / len(values) if len(values) > 1 else 0.0


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
