"""What a probe says about an example before and after the knockout, and how good probes are."""

import numpy as np

CALIBRATION_BINS = 10


def delta_p(clean: np.ndarray, changed: np.ndarray) -> np.ndarray:
    """How far the probe's confidence in its own clean verdict rises or falls, in percentage points."""
    sign = _verdict(clean)
    return 100 * (sigmoid(sign * changed) - sigmoid(sign * clean))


def delta_logit(clean: np.ndarray, changed: np.ndarray) -> np.ndarray:
    """How far the logit moves towards the probe's own clean verdict (above zero) or away from it."""
    return _verdict(clean) * (changed - clean)


def _verdict(clean: np.ndarray) -> np.ndarray:
    """1 for hallucinated, -1 for right, in the logits' own precision."""
    return np.where(clean >= 0, 1, -1).astype(clean.dtype)


def flips(clean: np.ndarray, changed: np.ndarray) -> np.ndarray:
    """Whether the probe's verdict changes."""
    return (clean >= 0) != (changed >= 0)


def sigmoid(logits: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(logits / 2))


def auc(logits: np.ndarray, positive: np.ndarray) -> np.ndarray:
    """Area under the ROC curve [layers] of logits [layers, examples]: how often a positive outranks a negative."""
    return np.array([_wins(row, positive)[positive].mean() for row in logits])


def auc_with_interval(logits: np.ndarray, positive: np.ndarray, clusters: list[str]) -> dict[str, np.ndarray]:
    """The mean `auc` of logits [repeats, layers, examples] over repeats, with its 95 % interval, both [layers].

    DeLong's variance; how far the repeats differ adds to it. `positive` are the labels, [examples], or those of each
    repeat, [repeats, examples].
    """
    positives = np.broadcast_to(positive, (len(logits), logits.shape[2]))
    areas, influences = zip(*map(influence, logits, positives), strict=True)
    error = np.sqrt(standard_error(np.mean(influences, axis=0), clusters) ** 2 + repeat_variance(np.array(areas)))
    return area_with_interval(np.mean(areas, axis=0), error)


def area_with_interval(areas: np.ndarray, error: np.ndarray) -> dict[str, np.ndarray]:
    """AUCs with their 95 % intervals by their standard errors, all [layers]. No end lies beyond 0 or 1."""
    reach = 1.96 * error
    return {"auc": areas, "auc_low": (areas - reach).clip(0, 1), "auc_high": (areas + reach).clip(0, 1)}


def repeat_variance(values: np.ndarray) -> np.ndarray:
    """The variance of the mean over repeats of values [repeats, layers]; nothing where there is only one."""
    return values.var(0, ddof=1) / len(values) if len(values) > 1 else np.zeros(values.shape[1])


def auc_gain(
    better: np.ndarray, logits: np.ndarray, positive: np.ndarray, clusters: list[str]
) -> dict[str, np.ndarray]:
    """How much larger the AUC of `better` [examples] is than those of `logits` [layers, examples], with 95 % intervals.

    DeLong's variance of the difference: both rank the same examples, so each example's influences are subtracted.
    """
    (area,), own = influence(better[None], positive)
    areas, others = influence(logits, positive)
    gain, error = area - areas, standard_error(own - others, clusters)
    return {"gain": gain, "gain_low": gain - 1.96 * error, "gain_high": gain + 1.96 * error}


def influence(logits: np.ndarray, positive: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The AUC [layers], and how each example moves it [layers, examples]: by its own share of wins."""
    wins = np.array([_wins(row, positive) for row in logits])
    areas = wins[:, positive].mean(1)
    return areas, (wins - areas[:, None]) / np.where(positive, positive.sum(), (~positive).sum())


def standard_error(influences: np.ndarray, clusters: list[str]) -> np.ndarray:
    """The standard error [layers]. Influences are summed within a cluster, because its examples vary together."""
    names, cluster_of = np.unique(np.array(clusters), return_inverse=True)
    together = np.array([np.bincount(cluster_of, row) for row in influences])
    return np.sqrt((together**2).sum(1) * len(names) / max(1, len(names) - 1))


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
        error += np.abs(np.where(which == index, chance - positive, 0).sum(-1))
    return error / chance.shape[-1]
