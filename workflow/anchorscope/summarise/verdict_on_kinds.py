"""The verdict on kinds: what the four accounts come to, for one model on one dataset.

Each gain is how much better one account predicts held-out examples than another, in nats per example, averaged over
layers. Kinds are judged down the right column of the square, degrees along its upper row, with both kinds of tails: a
second line also fits what is merely heavy-tailed, so what is seen must be seen with both. What is ruled out is ruled
out with the tails that predict better.

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

import numpy as np
import polars as pl

from anchorscope.summarise.square import COMPARED, EVERYONE, HEAVY, TAILS

TWO_KINDS, BY_DEGREES, ONE_MECHANISM, UNDECIDED = "two kinds", "by degrees", "one mechanism", "undecided"
FAMILY_ERROR = 0.05  # of all verdicts of a run together
POWER = 0.8  # how often an effect that could have been seen is seen
# In nats per example. Truths without kinds that no account fits exactly gain up to 0.002 with the weaker tails.
LEAST_GAIN = 0.01
VISIBLE = 0.05
# What planted kinds gain with the weaker tails, as far apart as on HotpotQA (kept: slope 0.85, level 0.6; lost: flat at
# 1.7; spread 0.8): by the correlation of what is left, for shares of the lost. Made by benchmarks/bench_kinds.py.
SHARES = (0.0, 0.10, 0.25, 0.50)
PLANTED = {0.0: (0.0, 0.062, 0.162, 0.184), 0.4: (0.0, 0.042, 0.118, 0.133), 0.8: (0.0, 0.033, 0.099, 0.11)}


@dataclass(frozen=True)
class Verdict:
    """What is said of one model and dataset."""

    verdict: str
    could_see: float  # the gain of kinds, in nats per example, that would have been seen in four of five such runs
    could_see_share: (
        float | None
    )  # the share of the lost that gives this gain, as far apart as on HotpotQA; None: no share


def judge(row: Mapping[str, float], verdicts: int) -> Verdict:
    """By a row with every gain and its standard error, as one of so many verdicts of a run."""
    sure = NormalDist().inv_cdf(1 - FAMILY_ERROR / verdicts)
    ends = {
        name: [(row[f"{name}_{tails}"], sure * row[f"{name}_{tails}_error"]) for tails in TAILS] for name in COMPARED
    }
    least = {name: min(gain - away for gain, away in some) for name, some in ends.items()}
    better = TAILS.index("student" if row[HEAVY] > 0 else "normal")
    most = {name: sum(some[better]) for name, some in ends.items()}
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
    return Verdict(found, could_see, share_that_gains(could_see, row["correlation"]))


def judge_all(accounts: pl.DataFrame) -> dict[tuple[str, str], Verdict]:
    """The verdict on every model and dataset of the gathered accounts; those on salmons count among them."""
    rows = accounts.filter(pl.col("layer").is_null(), among=EVERYONE).to_dicts()
    return {(row["model"], row["dataset"]): judge(row, verdicts=len(rows)) for row in rows}


def share_that_gains(gain: float, correlation: float) -> float | None:
    """The least share of planted kinds that gains as much; None where even a half does not."""
    known = np.array(list(PLANTED.values()))  # [correlations, shares]
    gains = [np.interp(correlation, list(PLANTED), column) for column in known.T]
    return float(np.interp(gain, gains, SHARES)) if gain <= gains[-1] else None
