"""Delta P and the anchor of every example under the four rules, and how well probes rank."""

from dataclasses import dataclass

import numpy as np

from anchorscope.probe.anchor_rules import FULL, ROLES, Side
from anchorscope.probe.scores import Scores
from anchorscope.probe.verdicts import delta_p, flips, sigmoid

CALIBRATION_BINS = 10


@dataclass(frozen=True)
class Role:
    """One labelling with one measurement: arrays [layers, examples]."""

    question_anchored: np.ndarray  # bool
    delta_p: np.ndarray


def logits_of(scores: Scores, side: Side, intervention: str) -> np.ndarray | None:
    """Logits [layers, examples], or None where that intervention was not run under the side's prompt."""
    found = scores.logits.get((side.probe, side.prompt, intervention))
    return None if found is None else found.numpy()


def roles(scores: Scores, rule: str, intervention: str, reference: int) -> list[Role | None]:
    """The roles of a rule; None where the intervention was not run under the measuring prompt."""
    found: list[Role | None] = []
    for labels_with, measures_with in ROLES[rule]:
        label = flips(
            logits_of(scores, labels_with, "clean"),
            logits_of(scores, labels_with, "exact_question"),
        )
        if rule != "flip":
            label = np.broadcast_to(label[reference], label.shape)
        changed = logits_of(scores, measures_with, intervention)
        clean = logits_of(scores, measures_with, "clean")
        found.append(None if changed is None else Role(label, delta_p(clean, changed)))
    return found


def reference_layer(scores: Scores, hallucinated: np.ndarray) -> int:
    """The layer whose clean probe ranks best."""
    return int(np.argmax(auc(logits_of(scores, FULL, "clean"), hallucinated)))


def auc(logits: np.ndarray, positive: np.ndarray) -> np.ndarray:
    """Area under the ROC curve [layers] of logits [layers, examples]: how often a positive outranks a negative."""
    return np.array([_wins(row, positive)[positive].mean() for row in logits])


def auc_with_interval(logits: np.ndarray, positive: np.ndarray, clusters: list[str]) -> dict[str, np.ndarray]:
    """`auc` with its 95 % interval, both [layers].

    DeLong's variance, from each example's own share of wins, summed over clusters because their examples go together.
    """
    names, places = np.unique(np.array(clusters), return_inverse=True)
    areas, errors = [], []
    for row in logits:
        wins = _wins(row, positive)
        area = wins[positive].mean()
        influence = np.where(positive, (wins - area) / positive.sum(), (wins - area) / (~positive).sum())
        together = np.bincount(places, influence)
        areas.append(area)
        errors.append(np.sqrt((together**2).sum() * len(names) / max(1, len(names) - 1)))
    area, error = np.array(areas), np.array(errors)
    return {"auc": area, "auc_low": area - 1.96 * error, "auc_high": area + 1.96 * error}


def _wins(row: np.ndarray, positive: np.ndarray) -> np.ndarray:
    """Each example's share of comparisons with the other class that come out right; a tie counts half: [examples]."""
    wins = np.empty(len(row))
    for mine, sign in ((positive, 1), (~positive, -1)):
        others = np.sort(sign * row[~mine])
        ranked = np.searchsorted(others, sign * row[mine], "left") + np.searchsorted(others, sign * row[mine], "right")
        wins[mine] = ranked / 2 / len(others)
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
