"""The four anchor rules: who labels an example, and who measures it.

A rule is a list of roles. The estimate under a rule is the mean over its roles.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Side:
    """A probe together with the prompt whose activations it reads."""

    probe: str
    prompt: str


FULL = Side("full", "first")
HALF_A = Side("half_a", "first")
HALF_B = Side("half_b", "first")
SECOND_B = Side("second_b", "second")
# rule -> roles, each (who labels, who measures). flip labels at every layer, the others at the reference layer.
ROLES: dict[str, list[tuple[Side, Side]]] = {
    "flip": [(FULL, FULL)],
    "fixed": [(FULL, FULL)],
    "crossfit": [(HALF_A, HALF_B), (HALF_B, HALF_A)],
    "replicate": [(HALF_A, SECOND_B), (SECOND_B, HALF_A)],
}


def role_columns(rule: str) -> list[tuple[str, str]]:
    """The columns of the delta table that hold each role's anchor and delta P."""
    if len(ROLES[rule]) == 1:
        return [(f"question_anchored_{rule}", "delta_p")]
    numbers = range(1, len(ROLES[rule]) + 1)
    return [(f"question_anchored_{rule}_{number}", f"delta_p_{rule}_{number}") for number in numbers]
