"""Answer-only input: what the probe says of an answer without its question, or after another one.

The scores of its passes have the columns of a delta table.
"""

from collections.abc import Iterator

import polars as pl

from anchorscope.experiments.groups import Groups
from anchorscope.experiments.means import rows_of_passes
from anchorscope.experiments.names import DELTA_LOGIT, DELTA_P
from anchorscope.experiments.record import Experiment, Wanted
from anchorscope.probe.quality import delta_logit, delta_p
from anchorscope.summarise.bootstrap import Resamples
from anchorscope.summarise.claims import BELOW_ZERO, NEAR_ZERO, Claim

INPUTS = ("answer_only", "answer_after_other")


def answer_only_rows(scores: pl.DataFrame, groups: Groups, resamples: Resamples) -> Iterator[dict]:
    """How far the probe's confidence in its clean verdict moves, by group and layer."""
    return rows_of_passes(INPUTS, {DELTA_P: delta_p, DELTA_LOGIT: delta_logit}, scores, groups, resamples)


ANSWER_ONLY = Experiment(
    title="The answer alone",
    shown="""How far the probe's confidence in its clean verdict moves when the model sees the answer without
its question (`answer_only`), beside the answer after an unrelated question (`answer_after_other`).""",
    claim=Claim(
        "answer_only",
        8,
        f"the answer alone moves Question-Anchored and leaves Answer-Anchored within {NEAR_ZERO:.0f} points of zero",
        "ΔP, Q minus A, mean over layers",
    ),
    rows=lambda given: answer_only_rows(given.measured, given.groups, given.resamples),
    parts=(
        Wanted("Q minus A", DELTA_P, "answer_only", region=BELOW_ZERO),
        Wanted("A", DELTA_P, "answer_only", anchor="answer", region=(-NEAR_ZERO, NEAR_ZERO)),
        Wanted("Q minus A after another question", DELTA_P, "answer_after_other", region=BELOW_ZERO),
    ),
)
