"""The knowledge boundary: are Question-Anchored answers more often right, surer and about more popular subjects?

Over all answers: the balance kept some of a class, so each analysed example weighs as many answers as it stands for.
And at equal clean logit of the probe that labels: a knockout that pushes every logit one way flips just those verdicts
that lie near the threshold on one side, which are more often right, without any second pathway.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from anchorscope.experiments.estimates import Sample, rows_of_groups
from anchorscope.experiments.groups import Groups
from anchorscope.experiments.names import ACCURACY, LOGPROB, SUBJECT, UNSURE
from anchorscope.experiments.new_passes import thirds
from anchorscope.summarise.bootstrap import Resamples
from anchorscope.summarise.strata import POPULARITY

EVERYONE = "all_answers"  # the condition
CHOSEN_NEEDED = ["id", "stands_for", "logprobs"]


@dataclass(frozen=True)
class Known:
    """What is known of each analysed example besides its group, [examples] each; NaN where it is not."""

    values: dict[str, np.ndarray]  # by measure
    stands_for: np.ndarray


def read_known(groups: Groups, chosen: pl.DataFrame, unsure: pl.DataFrame) -> Known:
    """From the chosen examples, and the answers to the question that allows "I don't know"."""
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
    found = every.select("stands_for", **columns).fill_null(np.nan)
    return Known({name: found[name].to_numpy() for name in columns}, found["stands_for"].to_numpy())


def boundary_rows(known: Known, groups: Groups, resamples: Resamples) -> Iterator[dict]:
    """Each measure by group and layer, over all answers and at equal clean logit; accuracy also by popularity."""
    third = thirds(groups.popularity, groups.popularity)
    for rule, grouping in groups.by_rule.items():
        inside = grouping.question_anchored
        for measure, column in known.values.items():
            values = np.broadcast_to(column, inside.shape)
            strata = {"all": np.isfinite(values)}
            if measure == ACCURACY:
                strata |= {name: strata["all"] & (third == number) for number, name in enumerate(POPULARITY)}
            for stratum, counted in strata.items():
                if counted.any():
                    sample = Sample(inside, counted, known.stands_for, grouping.trained)
                    names = {"measure": measure, "condition": EVERYONE, "stratum": stratum, "rule": rule}
                    matched = grouping.labelling if stratum == "all" else None
                    yield from rows_of_groups(values, sample, resamples, matched, **names)
