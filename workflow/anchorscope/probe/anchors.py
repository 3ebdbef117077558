"""The anchor and delta P of every example under each rule, and the layer at which most rules label."""

import numpy as np

from anchorscope.probe.anchor_rules import FULL, ROLES, RoleResult
from anchorscope.probe.quality import auc
from anchorscope.probe.scores import Scores
from anchorscope.probe.verdicts import delta_p, flips


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
