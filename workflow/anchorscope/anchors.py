"""Delta P and the anchor of every example under the four rules."""

from dataclasses import dataclass

import numpy as np

from anchorscope.crossfit import Scores
from anchorscope.rules import FULL, ROLES, Side

MEASURED = ("exact_question", "random_question")
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


def delta_p(clean: np.ndarray, changed: np.ndarray) -> np.ndarray:
    """Percentage points that the probe's confidence in its own clean verdict gains or loses."""
    sign = np.where(clean >= 0, 1.0, -1.0)
    return 100 * (sigmoid(sign * changed) - sigmoid(sign * clean))


def flips(clean: np.ndarray, changed: np.ndarray) -> np.ndarray:
    """Whether the probe's verdict changes."""
    return (clean >= 0) != (changed >= 0)


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

    def one(row: np.ndarray) -> float:
        others = np.sort(row[~positive])
        below = np.searchsorted(others, row[positive], "left") + np.searchsorted(others, row[positive], "right")
        return below.mean() / 2 / len(others)

    return np.array([one(row) for row in logits])


def calibration_error(logits: np.ndarray, positive: np.ndarray) -> np.ndarray:
    """Expected calibration error of logits [..., examples] over equal-width bins of P."""
    chance = sigmoid(logits)
    which = np.minimum((chance * CALIBRATION_BINS).astype(int), CALIBRATION_BINS - 1)
    error = np.zeros(chance.shape[:-1])
    for index in range(CALIBRATION_BINS):
        inside = which == index
        error += np.abs(np.where(inside, chance - positive, 0).sum(-1))
    return error / chance.shape[-1]


def sigmoid(logits: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(logits / 2))
