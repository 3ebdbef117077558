"""The verdict on kinds: what the four accounts come to, for one model on one dataset.

Each gain is how much better one account predicts held-out examples than another, in nats per example, averaged over
layers. Kinds are judged down the right column of the square, degrees along its upper row.

| verdict | |
|---|---|
| two kinds | the gain of kinds is above `LEAST_GAIN` beyond chance |
| by degrees | kinds are ruled out, and degrees gain beyond chance |
| one mechanism | kinds are ruled out, and degrees that gain `VISIBLE` |
| undecided | anything else |

Kinds are ruled out where they cannot gain `VISIBLE`, and where so many examples would have shown those of a quarter.
Beyond chance: one-sided, at a level at which all verdicts of a run together err with 5 %.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import polars as pl

TAILS = ("normal", "student")
# What each gain compares: the account that gains, then the other, as (two kinds, degrees).
COMPARED = {
    "kinds": ((True, True), (False, True)),
    "degrees": ((False, True), (False, False)),
    "kinds_without_degrees": ((True, False), (False, False)),
    "degrees_within_kinds": ((True, True), (True, False)),
}
ALL_EXAMPLES = "all"  # examples
TWO_KINDS, BY_DEGREES, ONE_MECHANISM, UNDECIDED = "two kinds", "by degrees", "one mechanism", "undecided"
FAMILY_ERROR = 0.05  # of all verdicts of a run together
POWER = 0.8  # how often an effect that could have been seen is seen
# In nats per example. Truths without kinds that no account fits exactly gain 0.001 on average.
LEAST_GAIN = 0.01
VISIBLE = 0.05
VISIBLE_SHARE = 0.25  # of examples that lose their evidence: if they could have been missed, kinds are not ruled out
# What planted kinds gain, as far apart as on HotpotQA: from the record of benchmarks/bench_kinds.py. Kept evidence has
# slope 0.85 and level 0.6, lost evidence is flat at 1.7, both with a spread of 0.8.
SHARES = (0.10, 0.25, 0.50)  # of the lost
# By examples and the correlation of what is left: the mean gain of kinds in nats per example, for each share, and its
# standard error times the root of the examples.
PLANTED = {
    (150, 0.0): ((0.0488, 0.1234, 0.1098), (0.61, 0.73, 0.79)),
    (150, 0.4): ((0.0149, 0.0758, 0.0634), (0.5, 0.65, 0.72)),
    (150, 0.8): ((0.0061, 0.0482, 0.042), (0.41, 0.6, 0.66)),
    (250, 0.0): ((0.0805, 0.1475, 0.1611), (0.58, 0.62, 0.61)),
    (250, 0.4): ((0.0524, 0.1019, 0.1094), (0.49, 0.54, 0.54)),
    (250, 0.8): ((0.0328, 0.0768, 0.0814), (0.4, 0.48, 0.5)),
    (400, 0.0): ((0.092, 0.1576, 0.1775), (0.56, 0.56, 0.52)),
    (400, 0.4): ((0.0629, 0.1105, 0.1229), (0.48, 0.48, 0.46)),
    (400, 0.8): ((0.0502, 0.0876, 0.1004), (0.42, 0.43, 0.42)),
    (1000, 0.0): ((0.0958, 0.1575, 0.1833), (0.53, 0.52, 0.47)),
    (1000, 0.4): ((0.0698, 0.1155, 0.1305), (0.46, 0.44, 0.41)),
    (1000, 0.8): ((0.0561, 0.0953, 0.1096), (0.4, 0.39, 0.38)),
    (4000, 0.0): ((0.0975, 0.1608, 0.1834), (0.54, 0.51, 0.46)),
    (4000, 0.4): ((0.0731, 0.1174, 0.1315), (0.45, 0.42, 0.39)),
    (4000, 0.8): ((0.0573, 0.0971, 0.1111), (0.38, 0.37, 0.36)),
}


@dataclass(frozen=True)
class Verdict:
    """What is said of one model and dataset."""

    verdict: str
    could_see_share: float | None  # of the lost, as far apart as on HotpotQA, seen four times in five; None: no share


def judge(row: Mapping[str, float], verdicts: int) -> Verdict:
    """By a row with every gain and its standard error, as one of so many verdicts of a run."""
    sure = NormalDist().inv_cdf(1 - FAMILY_ERROR / verdicts)
    least, most = ({name: row[name] + end * row[f"{name}_error"] for name in COMPARED} for end in (-sure, sure))
    share = least_share_seen(row["n"], row["correlation"], sure)
    ruled_out = most["kinds"] < VISIBLE and share is not None and share <= VISIBLE_SHARE
    if least["kinds"] > LEAST_GAIN:
        found = TWO_KINDS
    elif ruled_out and least["degrees"] > 0:
        found = BY_DEGREES
    elif ruled_out and most["degrees"] < VISIBLE:
        found = ONE_MECHANISM
    else:
        found = UNDECIDED
    return Verdict(found, share)


def judge_accounts(accounts: pl.DataFrame) -> dict[tuple[str, str], Verdict]:
    """The verdict on every model and dataset of the gathered accounts; those on salmons count among them."""
    rows = accounts.filter(pl.col("layer").is_null(), among=ALL_EXAMPLES).to_dicts()
    return {(row["model"], row["dataset"]): judge(row, verdicts=len(rows)) for row in rows}


def least_share_seen(examples: float, correlation: float, sure: float) -> float | None:
    """The least share of planted kinds that would be called two, by so many standard errors, four times in five."""
    sizes, correlations = (sorted(set(some)) for some in zip(*PLANTED, strict=True))

    def expected(values: int) -> np.ndarray:
        """The gains or the spreads of every share, between those that were planted."""
        table = np.array([[PLANTED[size, one][values] for one in correlations] for size in sizes])
        at_size = [[np.interp(correlation, correlations, column) for column in part.T] for part in table]
        return np.array([np.interp(np.log(examples), np.log(sizes), column) for column in np.transpose(at_size)])

    away = (expected(0) - LEAST_GAIN) / (expected(1) / examples**0.5) - sure
    power = np.maximum.accumulate([0.0, *map(NormalDist().cdf, away)])
    return float(np.interp(POWER, power, [0.0, *SHARES])) if power[-1] >= POWER else None
