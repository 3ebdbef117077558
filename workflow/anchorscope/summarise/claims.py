"""The claims behind the published figure, one record each, judged by where intervals lie.

A claim says that an effect lies in some region. It is supported when the whole 95 % interval lies inside the region,
contradicted when it lies outside, and undecided otherwise. Groups are those of `honest`, because under `flip` even
noise shows the published gap. Every claim is judged twice: by delta P, in points, and by the change of the logit, which
does not saturate. The first claim is also judged with the knockout's common push taken out.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations, pairwise
from statistics import NormalDist
from typing import Any

import numpy as np
import polars as pl

from anchorscope.probe.anchor_rules import HONEST
from anchorscope.summarise.bootstrap import ends
from anchorscope.summarise.curves import QUANTITIES, Uncertain, over_layers
from anchorscope.summarise.grouping import LOGITS

POINTS_PER_LOGIT = 25.0  # at a probability of one half: the bounds below, in logits, are so many times smaller
NEAR_ZERO = 10.0  # points that a flat curve may lie from zero; the published ones lie within that
SIMILAR = 25.0  # points between two datasets in a third of the depth; the published ones lie within that
NOTHING = 5.0  # points by which the control may move the probe
BEGINNING = 8  # one layer in so many counts as one of "the first layers"
LARGER = 1.2  # a larger model has more than this many times the parameters
VERDICTS = ("contradicted", "undecided", "supported")
NOT_APPLICABLE = "does not apply"
AGAINST = " against "  # between two models that a claim compares, the larger one first
NO_BETTER_THAN_CHANCE = "the probe is no better than chance"
Region = tuple[float, float]
BELOW_ZERO: Region = (-np.inf, 0.0)
Effect = tuple[float, np.ndarray]  # a number, and the same in every resample: [resamples]


@dataclass(frozen=True)
class Claim:
    """What is claimed, in words."""

    name: str
    number: int  # in files and on pages
    statement: str
    effect: str  # what is measured
    # Judges the open claim about one model, by its runs on some datasets, in all of which the probe reads truth.
    judge: Callable[["JudgedClaim", list["Run"]], "JudgedClaim"] | None = None


FIGURE_CLAIMS = (
    Claim("below", 1, "Question-Anchored lies below Answer-Anchored", "gap, mean over layers"),
    Claim(
        "flat",
        2,
        f"Answer-Anchored stays within {NEAR_ZERO:.0f} points of zero in every layer",
        "Answer-Anchored ΔP in its farthest layer",
        lambda claim, runs: _everywhere(claim, [run.answer for run in runs], bound=NEAR_ZERO * runs[0].bounds),
    ),
    Claim(
        "deepens",
        3,
        "the Question-Anchored curve deepens after the first layers",
        "later layers minus the first ones",
        lambda claim, runs: _below_zero(claim, [_deepening(run.question) for run in runs]),
    ),
    Claim(
        "larger_deeper",
        4,
        "the larger model of the family goes deeper",
        "deepest ΔP, larger minus smaller model",
    ),
    Claim(
        "similar",
        5,
        f"the datasets' Question-Anchored curves are within {SIMILAR:.0f} points of each other in every third of depth",
        "largest difference of two datasets in a third of the depth",
    ),
    Claim(
        "control",
        6,
        f"the random control moves the probe by at most {NOTHING:.0f} points in every layer",
        "ΔP under the control in its farthest layer",
        lambda claim, runs: _everywhere(claim, [run.control for run in runs], bound=NOTHING * runs[0].bounds),
    ),
)
CLAIMS = {claim.name: claim for claim in FIGURE_CLAIMS}


@dataclass(frozen=True)
class Run:
    """The headline's curves of one model on one dataset, in one quantity."""

    model: str
    dataset: str
    question: Uncertain
    answer: Uncertain
    gaps: dict[str, Uncertain]  # by the kind of logits
    control: Uncertain  # all examples, random_question
    reads_truth: bool  # whether the reference layer's probe is better than chance
    bounds: float = 1.0  # what the claims' bounds are multiplied with


@dataclass(frozen=True)
class Part:
    """One of several effects that an experiment's claim is about."""

    title: str
    verdict: str = "undecided"
    effect: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class JudgedClaim:
    """A claim about a model and a dataset with its verdict, the effect behind it and its interval."""

    claim: int  # its number
    model: str
    dataset: str | None = None  # None: all datasets
    logits: str = "measured"
    verdict: str = "undecided"
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    because: str | None = None  # why there is no effect
    in_logits: dict | None = None  # verdict, effect, low and high by the change of the logit
    rule: str | None = HONEST  # None where no groups are compared
    parts: list[Part] = field(default_factory=list)  # of an experiment's claim


@dataclass(frozen=True)
class Findings:
    """What claims.json holds and claims.md shows."""

    statements: dict[int, str]  # by number, the claims that were judged, in words
    bottom_line: dict[str, str]  # by model, what was found in a few sentences
    numbers: dict[str, dict]  # by model, what a page begins with: see `headline_numbers`
    claims: list[JudgedClaim]
    one_mechanism: list[dict]  # the gap beside what one mechanism would give
    kinds: list[dict]  # the verdict on each model and dataset: two kinds of examples, degrees, neither or undecided
    landmarks: list[dict]  # published beside measured
    weights: dict[str, str]  # by model, trained or random
    note: str

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"


def reads_truth(layers: pl.DataFrame) -> bool:
    """Whether the best layer's clean AUC is above one half, allowing for its choice among all layers (Bonferroni)."""
    clean = layers.filter(intervention="clean")
    best = clean.filter("is_reference").row(0, named=True)
    error = (best["auc"] - best["auc_low"]) / 1.96  # the upper end may have been cut off at 1
    return best["auc"] - NormalDist().inv_cdf(1 - 0.025 / len(clean)) * error > 0.5


def verdict_on(low: float, high: float, region: Region) -> str:
    """By where the interval lies."""
    if region[0] <= low and high <= region[1]:
        return "supported"
    return "contradicted" if high < region[0] or low > region[1] else "undecided"


def larger_neighbours(families: list[list[str]], parameters: dict[str, int]) -> list[tuple[str, str]]:
    """Neighbours in a family, where the second is the larger model; of two models of one size, neither is."""
    pairs = [pair for family in families for pair in pairwise(family)]
    return [(first, second) for first, second in pairs if parameters[second] > LARGER * parameters[first]]


def judge_claims(by_quantity: dict[str, list[Run]], sizes: list[tuple[str, str]]) -> list[JudgedClaim]:
    """Every claim by delta P, each with what the change of the logit says of it."""
    points, logits = (_judge(by_quantity[quantity], sizes) for quantity in QUANTITIES)
    said = ("verdict", "effect", "low", "high")
    return [
        replace(row, in_logits={name: getattr(other, name) for name in said})
        for row, other in zip(points, logits, strict=True)
    ]


def _judge(runs: list[Run], sizes: list[tuple[str, str]]) -> list[JudgedClaim]:
    """Every claim for every model, on each dataset and on all of them, and for every smaller model and a larger one."""
    judged = []
    models = list(dict.fromkeys(run.model for run in runs))
    for model in models:
        own = [run for run in runs if run.model == model]
        for some in [*([run] for run in own), *([own] if len(own) > 1 else [])]:
            judged += _model_claims(some)
        judged.append(_similar(own))
    alone = "the run has one model" if len(models) == 1 else "no figure shows a model beside a larger one"
    judged += [_larger_deeper(runs, smaller, larger) for smaller, larger in sizes] or [
        replace(_open("larger_deeper", model), verdict=NOT_APPLICABLE, because=alone) for model in models
    ]
    return sorted(judged, key=lambda row: row.claim)


def _open(name: str, model: str, dataset: str | None = None, logits: str = "measured") -> JudgedClaim:
    """A claim that is not judged yet."""
    return JudgedClaim(CLAIMS[name].number, model, dataset, logits)


def _model_claims(runs: list[Run]) -> list[JudgedClaim]:
    """The claims about one model on some datasets. A dataset whose probe reads nothing does not count."""
    names = runs[0].model, runs[0].dataset if len(runs) == 1 else None
    below = {logits: _open("below", *names, logits) for logits in LOGITS}
    others = [(_open(claim.name, *names), claim.judge) for claim in CLAIMS.values() if claim.judge]
    usable = [run for run in runs if run.reads_truth]
    if not usable:
        return [
            replace(claim, because=NO_BETTER_THAN_CHANCE) for claim in (*below.values(), *(one for one, _ in others))
        ]
    return [
        *(_below_zero(claim, [over_layers(run.gaps[logits]) for run in usable]) for logits, claim in below.items()),
        *(judge(claim, usable) for claim, judge in others),
    ]


def _difference(first: Effect, second: Effect) -> Effect:
    """First minus second, in as many resamples as both have."""
    count = min(len(first[1]), len(second[1]))
    return first[0] - second[0], first[1][:count] - second[1][:count]


def _deepening(curve: Uncertain) -> Effect:
    """Later layers minus the first ones."""
    first = -(-len(curve.mean) // BEGINNING)
    return _difference(over_layers(curve, slice(first, None)), over_layers(curve, slice(first)))


def _larger_deeper(runs: list[Run], smaller: str, larger: str) -> JudgedClaim:
    """By the deepest layer of each model, averaged over the datasets that both were measured on."""
    claim = _open("larger_deeper", f"{larger}{AGAINST}{smaller}")
    questions = {(run.model, run.dataset): run.question for run in runs if run.reads_truth}
    shared = [name for model, name in questions if model == smaller and (larger, name) in questions]
    if not shared:
        return replace(claim, because="there is no dataset on which both models' probes are better than chance")
    return _below_zero(
        claim,
        [_difference(_deepest(questions[larger, name]), _deepest(questions[smaller, name])) for name in shared],
    )


def _deepest(curve: Uncertain) -> Effect:
    """The lowest mean, and that layer's value in each resample."""
    if not np.isfinite(curve.mean).any():
        return np.nan, np.full(len(curve.resampled), np.nan)
    layer = int(np.nanargmin(curve.mean))
    return float(curve.mean[layer]), curve.resampled[:, layer]


def _similar(runs: list[Run]) -> JudgedClaim:
    """Every pair of datasets in every third of the depth, at once."""
    claim = _open("similar", runs[0].model)
    usable = [run.question for run in runs if run.reads_truth]
    if len(runs) == 1:
        return replace(claim, verdict=NOT_APPLICABLE, because="only one dataset was probed")
    if len(usable) < 2:
        return replace(claim, because="fewer than two datasets have a probe that is better than chance")
    differences = [
        _difference(over_layers(first, third), over_layers(second, third))
        for first, second in combinations(usable, 2)
        for third in np.array_split(np.arange(len(first.mean)), 3)
        if len(third)
    ]
    means, resamples = zip(*differences, strict=True)
    curve = Uncertain(np.array(means), np.stack(resamples, axis=1))
    return _everywhere(claim, [curve], bound=SIMILAR * runs[0].bounds)


def _below_zero(claim: JudgedClaim, effects: list[Effect]) -> JudgedClaim:
    """A claim about one number, averaged over datasets; those without an estimate are left out."""
    known = [(value, drawn) for value, drawn in effects if np.isfinite(value)]
    if not known:
        return replace(claim, because="a group has no examples")
    return replace(claim, **averaged(known, BELOW_ZERO))


def averaged(effects: list[Effect], region: Region) -> dict[str, Any]:
    """The mean of an effect over datasets with its interval, and the verdict on whether it lies in a region."""
    values, drawn = zip(*effects, strict=True)
    low, high = ends(np.mean(drawn, axis=0))
    return {"verdict": verdict_on(low, high, region), "effect": float(np.mean(values)), "low": low, "high": high}


def _everywhere(claim: JudgedClaim, curves: list[Uncertain], bound: float) -> JudgedClaim:
    """A claim that every layer of every curve lies within `bound` of zero, by a band that holds for all at once."""
    mean = np.concatenate([curve.mean for curve in curves])
    resampled = np.concatenate([curve.resampled for curve in curves], axis=1)
    known = np.isfinite(mean) & (np.isfinite(resampled).mean(0) > 0.5)
    if not known.any():
        return replace(claim, because="a group has no examples")
    mean, resampled = mean[known], resampled[:, known]
    error = np.nanstd(resampled, axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        distance = np.nan_to_num(np.abs(resampled - mean) / error)
    reach = np.quantile(distance.max(1), 0.95) * error
    verdicts = [verdict_on(low, high, (-bound, bound)) for low, high in zip(mean - reach, mean + reach, strict=True)]
    farthest = int(np.argmax(np.abs(mean)))
    return replace(
        claim,
        verdict=weakest(verdicts),
        effect=float(mean[farthest]),
        low=float(mean[farthest] - reach[farthest]),
        high=float(mean[farthest] + reach[farthest]),
    )


def weakest(verdicts: Iterable[str]) -> str:
    """Of a claim about several effects: one of them is enough to contradict it, all are needed to support it."""
    return min(verdicts, key=VERDICTS.index)
