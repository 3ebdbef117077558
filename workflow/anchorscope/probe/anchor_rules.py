"""The four anchor rules: which probe labels an example, and which one measures it.

A rule is a list of roles. The estimate under a rule is the mean over its roles.
"""

from dataclasses import dataclass


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


# An example is labelled at the layer that is plotted; under `fixed`, at the reference layers.
FLIP, HONEST = "flip", "honest"  # as published; the rule under which noise shows no gap
ROLES: dict[str, list[Role]] = {
    FLIP: [Role(FULL, FULL)],
    "fixed": [Role(FULL, FULL)],
    "crossfit": [Role(HALF_A, HALF_B), Role(HALF_B, HALF_A)],
    HONEST: [Role(HALF_A, SECOND_B), Role(SECOND_B, HALF_A)],
}
