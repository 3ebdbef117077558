"""Token patching: how often verdicts flip when the question's words are those of another question.

The scores of its passes have the columns of a delta table, and the donor's popularity; an example that a pass does not
concern has nulls.
"""

from collections.abc import Iterator

import numpy as np
import polars as pl

from anchorscope.experiments.groups import Groups
from anchorscope.experiments.means import rows_of_passes
from anchorscope.experiments.names import EQUAL_LOGIT, FLIPS
from anchorscope.experiments.record import Experiment, Wanted
from anchorscope.probe.quality import flips
from anchorscope.summarise.bootstrap import Resamples
from anchorscope.summarise.claims import Claim
from anchorscope.summarise.grouping import thirds

PATCHES = ("patch_question", "patch_random", "patch_right")


def patching_rows(scores: pl.DataFrame, groups: Groups, resamples: Resamples) -> Iterator[dict]:
    """How often the verdict flips, by group and layer, for all examples and for parts of them."""
    changes = {FLIPS: lambda clean, changed: 100.0 * flips(clean, changed)}
    return rows_of_passes(PATCHES, changes, scores, groups, resamples, strata=_strata, matched=True)


def _strata(unit: pl.DataFrame, clean: np.ndarray, groups: Groups) -> dict[str, np.ndarray]:
    """Parts of the examples, each bool [repeats, layers, examples] or what broadcasts to it.

    | stratum | |
    |---|---|
    | right, hallucinated | by the answer |
    | published | the answer is right, and the probe that measures judges it right |
    | same_popularity | the donor is in the example's own third of popularity, where both are known |
    """
    wrong = groups.examples["hallucinated"].to_numpy()
    donor = unit.head(len(wrong))["donor_popularity"].cast(pl.Float64).fill_null(np.nan).to_numpy()
    own, other = thirds(groups.popularity, groups.popularity), thirds(donor, groups.popularity)
    return {
        "all": np.ones(len(wrong), bool),
        "right": ~wrong,
        "hallucinated": wrong,
        "published": ~wrong & (clean < 0),
        "same_popularity": (own == other) & (own >= 0),
    }


PATCHING = Experiment(
    title="Token patching",
    shown="""How often the probe's verdict flips when the exact question words are replaced by those of another
question whose answer was hallucinated (`patch_question`), beside other words of the same donor (`patch_random`) and a
donor whose answer was right (`patch_right`).""",
    claim=Claim(
        "patching",
        7,
        "patching the question flips Question-Anchored verdicts more than Answer-Anchored ones, and beyond its control",
        "percentage of verdicts that flip, Q minus A, mean over layers",
    ),
    rows=lambda given: patching_rows(given.measured, given.groups, given.resamples),
    parts=(
        Wanted("Q minus A", FLIPS, "patch_question"),
        Wanted("Q minus A at equal clean logit", FLIPS, "patch_question", stratum=EQUAL_LOGIT),
        Wanted("Q minus A, less that of other words", FLIPS, "patch_question", less="patch_random"),
    ),
)
