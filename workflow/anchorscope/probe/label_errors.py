"""Labels of which a few are wrong: at random, or only right answers called hallucinated, or only the reverse."""

from dataclasses import dataclass

import numpy as np

from anchorscope.files.identity import seeded_place
from anchorscope.probe.examples import Examples, one_sided_fold

SHARE = 0.02  # of the labels are turned
DRAWS = 3  # of each kind of errors
# Which labels are turned: those that are `hallucinated`, those that are not, or either.
ERRORS = {"random": None, "right_called_hallucinated": False, "hallucinated_called_right": True}


@dataclass(frozen=True)
class Labelling:
    """Labels of which some are wrong."""

    errors: str
    draw: int
    hallucinated: np.ndarray  # [examples], bool


def labellings(examples: Examples, seed: int) -> list[Labelling]:
    """Each kind of errors, drawn a few times. A draw that would leave a probe with one class only is left out."""
    drawn = [
        Labelling(errors, draw, turn_labels(examples.ids, examples.hallucinated, turned, f"{seed} {errors} {draw}"))
        for errors, turned in ERRORS.items()
        for draw in range(DRAWS)
    ]
    return [one for one in drawn if one_sided_fold(one.hallucinated, examples.splits[0]) is None]


def turn_labels(ids: list[str], hallucinated: np.ndarray, turned: bool | None, seed: str) -> np.ndarray:
    """The labels [examples] with a seeded choice of them turned: of those that are `turned`, or of all if None.

    Of one class, twice the share is turned: of balanced labels, as many as if the errors were of both kinds.
    """
    chances = np.ones(len(ids), bool) if turned is None else hallucinated == turned
    order = sorted(np.flatnonzero(chances), key=lambda one: seeded_place(seed, ids[one]))
    count = max(1, round((1 if turned is None else 2) * SHARE * len(order)))
    labels = hallucinated.copy()
    labels[order[:count]] ^= True
    return labels
