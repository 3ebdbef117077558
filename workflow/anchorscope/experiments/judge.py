"""The claims of the experiments, one for each and by its name, judged like the others: by where intervals lie.

A claim has several parts, such as an effect and the same beyond its control. It is supported when all of them are, and
contradicted when one is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from anchorscope.experiments.catalogue import EVERY_CLAIM, EXPERIMENTS
from anchorscope.experiments.names import RULE_NAMES
from anchorscope.experiments.record import Wanted
from anchorscope.files.frames import read_frame
from anchorscope.probe.examples import Pair
from anchorscope.summarise.claims import (
    NO_BETTER_THAN_CHANCE,
    Effect,
    Findings,
    JudgedClaim,
    Part,
    averaged,
    reads_truth,
    weakest,
)
from anchorscope.summarise.tables import Coverage

TOO_SMALL = "a group has fewer than 20 examples in every layer"


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


def judge_experiment(name: str, tables: Mapping[Pair, pl.DataFrame], readable: set[Pair]) -> list[JudgedClaim]:
    """An experiment's claim for every model, on each dataset and on all, under both rules.

    `tables` are estimates of each model on each dataset; in those that are `readable`, the probe is better than chance.
    """
    experiment = EXPERIMENTS[name]
    number = experiment.claim.number
    if experiment.judge:
        return [
            experiment.judge(JudgedClaim(number, *pair, rule=None), table, pair in readable)
            for pair, table in tables.items()
        ]
    judged = []
    for model in dict.fromkeys(model for model, _ in tables):
        own = [pair for pair in tables if pair[0] == model]
        for some in [*([pair] for pair in own), *([own] if len(own) > 1 else [])]:
            dataset = some[0][1] if len(some) == 1 else None
            usable = [tables[pair] for pair in some if pair in readable]
            judged += [
                _judge(JudgedClaim(number, model, dataset, rule=rule), experiment.parts, usable) for rule in RULE_NAMES
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


def with_experiments(findings: Findings, judged: list[JudgedClaim]) -> Findings:
    """What was found, and what the experiments say; the claims of those that were not run are left out."""
    numbers = {row.claim for row in judged}
    statements = {claim.number: claim.statement for claim in EVERY_CLAIM if claim.number in numbers}
    return replace(findings, claims=findings.claims + judged, statements=findings.statements | statements)
