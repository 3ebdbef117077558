"""The claims of the experiments, one for each and by its name, judged like the others: by where intervals lie.

A claim has several parts, such as an effect and the same beyond its control. It is supported when all of them are, and
contradicted when one is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from anchorscope.experiments.names import (
    ACCURACY,
    DELTA_P,
    EQUAL_LOGIT,
    EVERYONE,
    FLIPS,
    GAIN,
    LOGIT,
    ONE_MODE,
    RULE_NAMES,
    SIGNED,
    SUBJECT,
    TWO_MODES,
)
from anchorscope.files.frames import read_frame
from anchorscope.probe.examples import Pair
from anchorscope.summarise.claims import (
    BELOW_ZERO,
    CLAIMS,
    NEAR_ZERO,
    NO_BETTER_THAN_CHANCE,
    Effect,
    JudgedClaim,
    Part,
    Region,
    averaged,
    reads_truth,
    weakest,
)
from anchorscope.summarise.tables import Coverage

ABOVE_ZERO: Region = (0.0, np.inf)
TOO_SMALL = "a group has fewer than 20 examples in every layer"
LEVEL = 5.0  # percent: a dip that is rarer than this with one mode speaks for two, and the other way round


@dataclass(frozen=True)
class Wanted:
    """One part of a claim: an effect, averaged over layers, and where it must lie."""

    title: str
    measure: str
    condition: str
    anchor: str | None = "gap"
    stratum: str = "all"
    less: str | None = None  # a condition whose effect is subtracted
    region: Region = ABOVE_ZERO
    needed: bool = True  # else it is left out where it was not measured


# By experiment; of saliency, `_modes` knows the parts.
PARTS = {
    "patching": (
        Wanted("Q minus A", FLIPS, "patch_question"),
        Wanted("Q minus A at equal clean logit", FLIPS, "patch_question", stratum=EQUAL_LOGIT),
        Wanted("Q minus A, less that of other words", FLIPS, "patch_question", less="patch_random"),
    ),
    "answer_only": (
        Wanted("Q minus A", DELTA_P, "answer_only", region=BELOW_ZERO),
        Wanted("A", DELTA_P, "answer_only", anchor="answer", region=(-NEAR_ZERO, NEAR_ZERO)),
        Wanted("Q minus A after another question", DELTA_P, "answer_after_other", region=BELOW_ZERO),
    ),
    "boundary": (
        Wanted("accuracy", ACCURACY, EVERYONE),
        Wanted("accuracy at equal clean logit", ACCURACY, EVERYONE, stratum=EQUAL_LOGIT),
        Wanted("popularity", SUBJECT, EVERYONE, needed=False),
        Wanted("popularity at equal clean logit", SUBJECT, EVERYONE, stratum=EQUAL_LOGIT, needed=False),
    ),
    "awareness": (
        Wanted("states less clean logit", GAIN, SIGNED, anchor=None),
        Wanted("states less clean logit and its size", GAIN, LOGIT, anchor=None),
    ),
}


def judge_experiments(
    files: Mapping[str, Sequence[str]], coverage: Coverage, layers: pl.DataFrame
) -> list[JudgedClaim]:
    """The claims of all experiments, each with one file of estimates per pair; `layers` has the headline's rows."""
    readable = {
        (model, dataset)
        for model, dataset in coverage.probed()
        if reads_truth(layers.filter(model=model, dataset=dataset))
    }
    judged = []
    for experiment, paths in files.items():
        tables = {pair: read_frame(path) for pair, path in coverage.files_of_probed(paths).items()}
        judged += judge_experiment(experiment, tables, readable)
    return judged


def judge_experiment(experiment: str, tables: Mapping[Pair, pl.DataFrame], readable: set[Pair]) -> list[JudgedClaim]:
    """An experiment's claim for every model, on each dataset and on all, under both rules.

    `tables` are estimates of each model on each dataset; in those that are `readable`, the probe is better than chance.
    """
    number = CLAIMS[experiment].number
    if experiment == "saliency":
        return [
            _modes(JudgedClaim(number, *pair, rule=None), table, pair in readable) for pair, table in tables.items()
        ]
    judged = []
    for model in dict.fromkeys(model for model, _ in tables):
        own = [pair for pair in tables if pair[0] == model]
        for some in [*([pair] for pair in own), *([own] if len(own) > 1 else [])]:
            dataset = some[0][1] if len(some) == 1 else None
            usable = [tables[pair] for pair in some if pair in readable]
            judged += [
                _judge(JudgedClaim(number, model, dataset, rule=rule), PARTS[experiment], usable) for rule in RULE_NAMES
            ]
    return judged


def _judge(claim: JudgedClaim, wanted: tuple[Wanted, ...], tables: list[pl.DataFrame]) -> JudgedClaim:
    """By one rule, averaged over some datasets."""
    if not tables:
        return replace(claim, because=NO_BETTER_THAN_CHANCE)
    found = [_part(one, tables, str(claim.rule)) for one in wanted]
    parts = [part for part, one in zip(found, wanted, strict=True) if one.needed or part.effect is not None]
    first = parts[0]
    if first.effect is None:
        return replace(claim, because=TOO_SMALL)
    verdict = weakest(part.verdict for part in parts)
    return replace(claim, verdict=verdict, effect=first.effect, low=first.low, high=first.high, parts=parts)


def _part(wanted: Wanted, tables: list[pl.DataFrame], rule: str) -> Part:
    """A part averaged over datasets."""
    effects = [found for table in tables if (found := _effect(wanted, table, rule))]
    if not effects:
        return Part(wanted.title)
    return Part(wanted.title, **averaged(effects, wanted.region))


def _effect(wanted: Wanted, table: pl.DataFrame, rule: str) -> Effect | None:
    """The mean over layers of what a part is about, and its resamples."""
    names = {"measure": wanted.measure, "stratum": wanted.stratum, "rule": rule}
    rows = table.filter(
        pl.col("layer").is_null(), pl.col("value").is_not_null(), pl.col("anchor").eq_missing(wanted.anchor), **names
    )
    found = {row["condition"]: (row["value"], np.array(row["resampled"], np.float64)) for row in rows.to_dicts()}
    first = found.get(wanted.condition)
    if wanted.less is None or first is None:
        return first
    second = found.get(wanted.less)
    return second and (first[0] - second[0], first[1] - second[1])


def _modes(claim: JudgedClaim, table: pl.DataFrame, readable: bool) -> JudgedClaim:
    """Two modes of the flow from the question, and not of the flow from as many other words."""
    rows = table.filter(stratum="all").iter_rows(named=True)
    chances = {(row["condition"], row["measure"]): row["value"] for row in rows}
    if not readable or not chances:
        return replace(claim, because="there are fewer than 20 examples" if readable else NO_BETTER_THAN_CHANCE)
    exact, two = chances["exact", ONE_MODE], chances["exact", TWO_MODES]
    others = chances.get(("random", ONE_MODE), 100.0)
    verdict = "supported" if exact < LEVEL else "contradicted" if two < LEVEL else "undecided"
    parts = [
        Part("chance of such a dip with one mode, %", verdict, exact),
        Part("of so small a dip with two clear modes, %", verdict, two),
        Part("with one mode, for as many other words, %", "supported" if others >= LEVEL else "undecided", others),
    ]
    return replace(claim, verdict=weakest(part.verdict for part in parts), effect=exact, parts=parts)
