"""The verdict on kinds: what the four accounts come to, for one model on one dataset.

Each gain is how much better one account predicts held-out examples than another, in nats per example, averaged over
layers. Kinds are judged down the right column of the square, degrees along its upper row, with both kinds of tails: a
second line also fits what is merely heavy-tailed, so the weaker of the two gains counts.

| verdict | |
|---|---|
| two kinds | the gain of kinds is above `LEAST_GAIN` beyond chance |
| by degrees | kinds that gain `VISIBLE` are ruled out, and degrees gain beyond chance |
| one mechanism | kinds and degrees that gain `VISIBLE` are ruled out |
| undecided | anything else |

Beyond chance: one-sided, at a level at which all verdicts of a run together err with 5 %.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist

from anchorscope.summarise.square import COMPARED, TAILS

TWO_KINDS, BY_DEGREES, ONE_MECHANISM, UNDECIDED = "two kinds", "by degrees", "one mechanism", "undecided"
FAMILY_ERROR = 0.05  # of all verdicts of a run together
POWER = 0.8  # how often an effect that could have been seen is seen
# In nats per example. A misspecified curve or spread gains up to 0.006; planted kinds as far apart as HotpotQA's gain
# 0.03 to 0.05 where they are a tenth of the examples, and 0.1 and more where they are a quarter.
LEAST_GAIN = 0.01
VISIBLE = 0.05


@dataclass(frozen=True)
class Verdict:
    """What is said of one model and dataset."""

    verdict: str
    could_see: float  # the gain of kinds, in nats per example, that would have been seen in four of five such runs


def judge(row: Mapping[str, float], verdicts: int) -> Verdict:
    """By a row with every gain and its standard error, as one of so many verdicts of a run."""
    sure = NormalDist().inv_cdf(1 - FAMILY_ERROR / verdicts)
    ends = {
        name: [(row[f"{name}_{tails}"], sure * row[f"{name}_{tails}_error"]) for tails in TAILS] for name in COMPARED
    }
    least = {name: min(gain - away for gain, away in some) for name, some in ends.items()}
    most = {name: min(gain + away for gain, away in some) for name, some in ends.items()}
    error = max(row[f"kinds_{tails}_error"] for tails in TAILS)
    could_see = LEAST_GAIN + (sure + NormalDist().inv_cdf(POWER)) * error
    if least["kinds"] > LEAST_GAIN:
        found = TWO_KINDS
    elif most["kinds"] < VISIBLE and least["degrees"] > 0:
        found = BY_DEGREES
    elif most["kinds"] < VISIBLE and most["degrees"] < VISIBLE:
        found = ONE_MECHANISM
    else:
        found = UNDECIDED
    return Verdict(found, could_see)
