"""The knowledge boundary: are Question-Anchored answers more often right, surer and about more popular subjects?

Over all answers: the balance kept some of a class, so each analysed example weighs as many answers as it stands for.
And at equal clean logit of the probe that labels: a knockout that pushes every logit one way flips just those verdicts
that lie near the threshold on one side, which are more often right, without any second pathway.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import polars as pl

from anchorscope.experiments.groups import Groups
from anchorscope.experiments.means import rows_of_groups
from anchorscope.experiments.names import ACCURACY, EQUAL_LOGIT, EVERYONE, LOGPROB, SUBJECT, UNSURE
from anchorscope.experiments.record import Experiment, Material, Wanted
from anchorscope.summarise.bootstrap import Resamples
from anchorscope.summarise.claims import Claim
from anchorscope.summarise.grouping import POPULARITY, thirds


def read_known(groups: Groups, chosen: pl.DataFrame, unsure: pl.DataFrame) -> pl.DataFrame:
    """What is known of each analysed example besides its group: measures, and how many answers it stands for.

    From the chosen examples, and the answers to the question that allows "I don't know". NaN where it is not known.
    """
    every = groups.examples.join(chosen, on="id", how="left", maintain_order="left").join(
        unsure.select("id", unsure=100.0 * pl.col("refused").cast(pl.Float64)),
        on="id",
        how="left",
        maintain_order="left",
    )
    columns = {
        ACCURACY: 100.0 * (1 - pl.col("hallucinated").cast(pl.Float64)),
        UNSURE: pl.col("unsure"),
        SUBJECT: pl.when(pl.col("popularity") > 0).then(pl.col("popularity").cast(pl.Float64).log10()),
        LOGPROB: pl.col("logprobs").list.mean().cast(pl.Float64),  # the token that ended the answer included
    }
    return every.select("stands_for", **columns).fill_null(np.nan)


def boundary_rows(known: pl.DataFrame, groups: Groups, resamples: Resamples) -> Iterator[dict]:
    """Each measure by group and layer, over all answers and at equal clean logit; accuracy also by popularity."""
    third = thirds(groups.popularity, groups.popularity)
    for rule, grouping in groups.by_rule.items():
        for measure in (name for name in known.columns if name != "stands_for"):
            values = np.broadcast_to(known[measure].to_numpy(), grouping.counted.shape)
            strata = {"all": np.isfinite(values)}
            if measure == ACCURACY:
                strata |= {name: strata["all"] & (third == number) for number, name in enumerate(POPULARITY)}
            for stratum, counted in strata.items():
                if counted.any():
                    some = replace(grouping, counted=counted, stands_for=known["stands_for"].to_numpy())
                    names = {"measure": measure, "condition": EVERYONE, "stratum": stratum, "rule": rule}
                    yield from rows_of_groups(values, some, resamples, matched=stratum == "all", **names)


def _rows(given: Material) -> Iterator[dict]:
    chosen = given.of_shards("chosen", ["id", "stands_for", "logprobs"])
    known = read_known(given.groups, chosen, given.of_shards("unsure", ["id", "refused"]))
    return boundary_rows(known, given.groups, given.resamples)


BOUNDARY = Experiment(
    title="Knowledge boundary",
    shown="""How often each group is right, how often the model says that it does not know when that is offered,
how popular the subject is and how likely the answer, over all answers; and the gaps at equal clean logit.""",
    claim=Claim(
        "boundary",
        9,
        "Question-Anchored answers are more often right and about more popular subjects, also at equal clean logit",
        "percentage of right answers, Q minus A, mean over layers",
    ),
    rows=_rows,
    parts=(
        Wanted("accuracy", ACCURACY, EVERYONE),
        Wanted("accuracy at equal clean logit", ACCURACY, EVERYONE, stratum=EQUAL_LOGIT),
        Wanted("popularity", SUBJECT, EVERYONE, needed=False),
        Wanted("popularity at equal clean logit", SUBJECT, EVERYONE, stratum=EQUAL_LOGIT, needed=False),
    ),
)
