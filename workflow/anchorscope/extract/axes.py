"""What can be measured for every example: which activations, at which tokens, in which passes."""

from collections.abc import Collection
from dataclasses import dataclass
from itertools import product

COMPONENTS = ("resid", "attn", "mlp")
POSITIONS = ("answer_last", "final", "before_answer")


@dataclass(frozen=True)
class Headline:
    """The component and position that the claims, strata and the report are about."""

    component: str
    position: str


@dataclass(frozen=True)
class Grid:
    """The activations that a run keeps and probes: each component at each position."""

    components: tuple[str, ...] = COMPONENTS
    positions: tuple[str, ...] = POSITIONS

    @classmethod
    def of(cls, components: Collection[str], positions: Collection[str]) -> "Grid":
        """The grid of some components and positions, in the order that all files and tables have."""
        return cls(
            tuple(name for name in COMPONENTS if name in components),
            tuple(name for name in POSITIONS if name in positions),
        )

    def __len__(self) -> int:
        return len(self.components) * len(self.positions)

    def places(self) -> list[tuple[str, str]]:
        """Every component with every position."""
        return list(product(self.components, self.positions))


FULL = Grid()
HEADLINE = Grid(("resid",), ("answer_last",))  # what the published figure shows
# Every (prompt, intervention) that is run. `replicate` needs clean and exact_question once more.
PASSES = [
    ("first", "clean"),
    ("first", "exact_question"),
    ("first", "random_question"),
    ("second", "clean"),
    ("second", "exact_question"),
]
# The interventions whose effect is measured.
MEASURED = tuple(intervention for prompt, intervention in PASSES if prompt == "first" and intervention != "clean")
