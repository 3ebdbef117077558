"""What can be measured for every example: which activations, at which tokens, in which passes."""

import json
import re
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

    @classmethod
    def from_json(cls, text: str) -> "Headline":
        return cls(**json.loads(text))

    def grid(self) -> "Grid":
        """Of this place alone."""
        return Grid((self.component,), (self.position,))


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


FULL_GRID = Grid()
HEADLINE = Grid(("resid",), ("answer_last",))  # what the published figure shows
Pass = tuple[str, str]  # a prompt and an intervention
CLEAN: Pass = ("first", "clean")
EXACT = "exact_question"  # the knockout that is always run, with the clean passes
# Every knockout with its control, in the order of all tables. Each has files of its own.
CONTROLS = {
    EXACT: "random_question",
    "subject": "random_subject",
    "property": "random_property",
    "content": "random_content",
    "whole_question": "random_whole_question",
}
# Experiments whose passes have other tokens than the example's own. Each has files of its own, too.
REPLACING: dict[str, list[Pass]] = {
    "patching": [("first", "patch_question"), ("first", "patch_random"), ("first", "patch_right")],
    "answer_only": [("first", "answer_after_other"), ("none", "answer_only")],
}
WINDOWED = re.compile(rf"{EXACT}_w([1-9][0-9]*)")


def windowed(window: int) -> str:
    """The knockout of the exact question tokens in so many layers up to the one that is read."""
    return f"{EXACT}_w{window}"


def window_of(knockout: str) -> int | None:
    """In how many layers up to the one that is read a knockout cuts; None for all of them."""
    found = WINDOWED.fullmatch(knockout)
    return int(found[1]) if found else None


def is_knockout(name: str) -> bool:
    return name in CONTROLS or window_of(name) is not None


def knockouts_of(interventions: Collection[str], windows: Collection[int]) -> list[str]:
    """The knockouts that a config asks for, in the order of all tables. The exact question's own is always there."""
    named = [name for name in CONTROLS if name == EXACT or name in interventions]
    return named + [windowed(window) for window in sorted(windows)]


def passes_of(knockout: str) -> list[Pass]:
    """What is run for a knockout, or for an experiment that replaces tokens. Passes under one prompt stand together.

    `honest` needs a knockout under the second prompt, too. All else is run under the first one only.
    """
    if knockout in REPLACING:
        return REPLACING[knockout]
    if window_of(knockout):
        return [("first", knockout)]
    first, second = [("first", knockout), ("first", CONTROLS[knockout])], [("second", knockout)]
    if knockout == EXACT:
        return [("first", "clean"), *first, ("second", "clean"), *second]
    return first + second


PASSES = passes_of(EXACT)  # of every run
