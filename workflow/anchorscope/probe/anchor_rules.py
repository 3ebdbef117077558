"""The four anchor rules: which probe labels an example, and which one measures it.

A rule is a list of roles. The estimate under a rule is the mean over its roles.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Probe:
    """Where a probe learns and reads: the half of the training folds it sees, and the prompt of its activations."""

    name: str
    half: int | None  # None: both halves
    prompt: str


FULL = Probe("full", None, "first")
HALF_A = Probe("half_a", 0, "first")
HALF_B = Probe("half_b", 1, "first")
SECOND_B = Probe("second_b", 1, "second")
PROBES = (FULL, HALF_A, HALF_B, SECOND_B)


@dataclass(frozen=True)
class Role:
    """The probe whose verdict labels an example, and the probe whose confidence is measured."""

    labels: Probe
    measures: Probe


# flip labels at every layer, the other rules at the reference layer.
ROLES: dict[str, list[Role]] = {
    "flip": [Role(FULL, FULL)],
    "fixed": [Role(FULL, FULL)],
    "crossfit": [Role(HALF_A, HALF_B), Role(HALF_B, HALF_A)],
    "replicate": [Role(HALF_A, SECOND_B), Role(SECOND_B, HALF_A)],
}


@dataclass(frozen=True)
class RoleResult:
    """What one role says about every example: arrays [layers, examples]."""

    question_anchored: np.ndarray  # bool
    delta_p: np.ndarray


def role_columns(rule: str) -> list[tuple[str, str]]:
    """The columns of the delta table that hold each role's anchor and delta P."""
    if len(ROLES[rule]) == 1:
        return [(f"question_anchored_{rule}", "delta_p")]
    numbers = range(1, len(ROLES[rule]) + 1)
    return [(f"question_anchored_{rule}_{number}", f"delta_p_{rule}_{number}") for number in numbers]
