"""Delta P and the anchor of every example under the four rules, and how well probes rank."""

import numpy as np

from anchorscope.probe.anchor_rules import FULL, ROLES, RoleResult
from anchorscope.probe.scores import Scores
from anchorscope.probe.verdicts import delta_p, flips, sigmoid

CALIBRATION_BINS = 10


def role_results(scores: Scores, rule: str, intervention: str, reference: int) -> list[RoleResult | None]:
    """What each role of a rule says; None where the intervention was not run under the measuring probe's prompt."""
    results: list[RoleResult | None] = []
    for role in ROLES[rule]:
        if not scores.has(role.measures, intervention):
            results.append(None)
            continue
        labels = flips(scores.of(role.labels, "clean"), scores.of(role.labels, "exact_question"))
        if rule != "flip":
            labels = np.broadcast_to(labels[reference], labels.shape)
        clean, changed = (scores.of(role.measures, state) for state in ("clean", intervention))
        results.append(RoleResult(labels, delta_p(clean, changed)))
    return results


def reference_layer(scores: Scores, hallucinated: np.ndarray) -> int:
    """The layer whose clean probe ranks best."""
    return int(np.argmax(auc(scores.of(FULL, "clean"), hallucinated)))


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
