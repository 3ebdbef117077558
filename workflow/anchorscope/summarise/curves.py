"""Mean change by layer of each group of examples, with what every resample says of it.

Examples are labelled at the layer that is plotted, or at the reference layers: those whose clean probe ranks within one
standard error of the best, chosen in each resample. The curve of AUC against layer is flat at its top; a label at its
very highest layer would depend on rounding.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import polars as pl

from anchorscope.probe.quality import auc
from anchorscope.summarise.bootstrap import (
    CACHED,
    Resamples,
    ends_as_columns,
    group_means,
    group_sums,
    interval,
    known_mean,
)
from anchorscope.summarise.grouping import RoleResult

QUANTITIES = ("delta_p", "delta_logit")  # in percentage points, and in logits
SUMMED = (*QUANTITIES, "judged_right")  # the last without resamples
RARE = 0.01  # of the resamples: a reference layer that fewer choose is left out


@dataclass(frozen=True)
class Uncertain:
    """A number for each layer, NaN where there is none, and its resamples."""

    mean: np.ndarray  # [layers]
    resampled: np.ndarray  # [resamples, layers]

    def __sub__(self, other: "Uncertain") -> "Uncertain":
        return Uncertain(self.mean - other.mean, self.resampled - other.resampled)


@dataclass(frozen=True)
class Curve:
    """One group, averaged over the roles of a rule and over repeats."""

    n: np.ndarray  # [layers], examples in the group
    fewest: np.ndarray  # [layers], examples in its smallest part: in any role or repeat, and for a gap in either group
    delta_p: Uncertain
    delta_logit: Uncertain
    share: Uncertain  # of all examples
    judged_right: np.ndarray  # [layers], share of the group whose clean verdict was "right"


@dataclass(frozen=True)
class GroupSums:
    """What curves are made of: sums over the Question-Anchored examples and over the others.

    Arrays are [roles, repeats, groups, 1 + values, resamples, layers]. Those of different examples add up.
    """

    once: np.ndarray  # each example once: how many, both quantities, and how many were judged right
    drawn: np.ndarray  # how many, and both quantities
    share_learnt: float

    def __add__(self, other: "GroupSums") -> "GroupSums":
        return replace(self, once=self.once + other.once, drawn=self.drawn + other.drawn)

    def at(self, layers: np.ndarray) -> "GroupSums":
        """Of nobody at other layers than these, [layers] bool."""
        return replace(self, once=self.once * layers, drawn=self.drawn * layers)


def sums_of(results: list[RoleResult], resamples: Resamples) -> GroupSums:
    """With labels at the layer that is plotted."""
    return _sums_by_labels(results, [result.question_anchored[None] for result in results], resamples)[0]


def _sums_by_labels(results: list[RoleResult], labels: list[np.ndarray], resamples: Resamples) -> list[GroupSums]:
    """The sums under several labellings, each role's [labellings, repeats, layers or 1, examples].

    Examples that count nowhere, as most do where the results are of one form, are left out of the products.
    """
    repeats, layers, _ = results[0].counted.shape
    shape = len(labels[0]), len(results), repeats, 2
    once = np.empty((*shape, 1 + len(SUMMED), 1, layers))
    drawn = np.empty((*shape, 1 + len(QUANTITIES), len(resamples.weights), layers), resamples.weights.dtype)
    for role, (result, inside) in enumerate(zip(results, labels, strict=True)):
        some = result.counted.any((0, 1))
        weights = resamples.weights if some.all() else resamples.weights[:, some]
        everyone_once = np.ones((1, weights.shape[1]))
        for repeat in range(repeats):
            parts = inside[:, repeat], *(getattr(result, name)[repeat] for name in ("counted", *SUMMED))
            who, counted, *values = (np.compress(some, part, axis=-1) for part in parts)
            once[:, role, repeat] = group_sums(everyone_once, who, counted, np.stack(values))
            drawn[:, role, repeat] = group_sums(weights, who, counted, np.stack(values[:-1]))
    return [GroupSums(*sums, results[0].share_learnt) for sums in zip(once, drawn, strict=True)]


def curves(results: list[RoleResult], resamples: Resamples) -> dict[str, Curve]:
    """The curve of each anchor: question, answer, all, and gap, which is question minus answer."""
    return curves_of(sums_of(results, resamples), resamples)


def curves_of(sums: GroupSums, resamples: Resamples) -> dict[str, Curve]:
    inside, outside = np.moveaxis(sums.once[:, :, :, 0, 0].astype(np.int64), 2, 0)
    counts = {"question": inside, "answer": outside, "all": inside + outside}  # [roles, repeats, layers]
    by_repeat = _estimates(sums.once)[..., 0, :]  # [repeats, groups, estimates, layers]
    judged_right = known_mean(by_repeat[:, :, len(QUANTITIES)])  # which is not resampled
    mean, moved = resamples.over_repeats(np.delete(by_repeat, len(QUANTITIES), axis=2), sums.share_learnt)
    few = max(1, CACHED // sums.drawn[..., 0, :].size)
    starts = range(0, sums.drawn.shape[-2], few)
    parts = [known_mean(_estimates(sums.drawn[..., start : start + few, :])) for start in starts]
    drawn = np.concatenate(parts, axis=-2) + moved  # [groups, estimates, resamples, layers]
    found = {}
    for number, (anchor, count) in enumerate(counts.items()):
        delta_p, delta_logit, share = map(Uncertain, mean[number], drawn[number])
        found[anchor] = Curve(
            n=count.mean((0, 1)),
            fewest=count.min((0, 1)),
            delta_p=delta_p,
            delta_logit=delta_logit,
            share=share,
            judged_right=judged_right[number],
        )
    return {**found, "gap": _gap(found["question"], found["answer"], found["all"])}


def _estimates(sums: np.ndarray) -> np.ndarray:
    """Each group's means, then its share of all examples: [repeats, groups, values + 1, resamples, layers]."""
    means, shares = group_means(sums)
    return np.concatenate([means, shares[:, :, :, None]], axis=3).mean(0)


def _gap(question: Curve, answer: Curve, everyone: Curve) -> Curve:
    return Curve(
        n=everyone.n,
        fewest=np.minimum(question.fewest, answer.fewest),
        delta_p=question.delta_p - answer.delta_p,
        delta_logit=question.delta_logit - answer.delta_logit,
        share=everyone.share,
        judged_right=question.judged_right - answer.judged_right,
    )


def average_curves(some: list[Curve], once: np.ndarray, drawn: np.ndarray) -> Curve:
    """The mean of some curves, where known, by weights [curves, 1, layers]; in resamples [curves, resamples, layers].

    Weights that are the same in all layers, or in all resamples, may have one of them.
    """

    def average(name: str) -> np.ndarray | Uncertain:
        values = [getattr(curve, name) for curve in some]
        if not isinstance(values[0], Uncertain):
            return known_mean(np.stack(values)[:, None], once)[0]
        return Uncertain(
            known_mean(np.stack([value.mean for value in values])[:, None], once)[0],
            known_mean(np.stack([value.resampled for value in values]), drawn),
        )

    averaged: dict[str, Any] = {field.name: average(field.name) for field in fields(Curve)}
    return Curve(**averaged)


def with_names(table: pl.DataFrame, names: Mapping[str, str]) -> pl.DataFrame:
    """A table with the same names in every row."""
    return table.with_columns(**{name: pl.lit(value) for name, value in names.items()})


def curve_rows(curve: Curve, **names: str) -> pl.DataFrame:
    """One row per layer: n, share and changes with their intervals, then some names. An interval needs two examples."""
    known = curve.fewest >= 2
    columns = {"n": np.rint(curve.n).astype(np.int64), "judged_right": curve.judged_right}
    for name, (low, high) in (
        ("share", ("share_low", "share_high")),
        ("delta_p", ("low", "high")),
        ("delta_logit", ("logit_low", "logit_high")),
    ):
        value: Uncertain = getattr(curve, name)
        needed = True if name == "share" else known
        columns[name] = value.mean
        columns[low], columns[high] = (np.where(needed, end, np.nan) for end in interval(value.resampled))
    table = pl.DataFrame({"layer": np.arange(len(known), dtype=np.int16), **columns})
    return with_names(table.with_columns(pl.col(pl.Float64).fill_nan(None)), names)


def over_layers(value: Uncertain, layers: slice | np.ndarray = np.s_[:]) -> tuple[float, np.ndarray]:
    """The mean over those layers that have an estimate, and the same of each resample; NaN where there is none."""
    mean, resampled = value.mean[layers], value.resampled[:, layers]
    known = np.isfinite(mean)
    return float(known_mean(mean[known])), known_mean(resampled[:, known].T)


def series_row(curve: Curve, flip: Curve | None = None) -> dict:
    """What a whole curve comes to: its area (the mean over all layers that have an estimate) and its deepest layer.

    The deepest layer is one of those with an interval; a curve without any comes to nothing. `flip` is the same group's
    curve under that rule. With it, also the share of its area that is left in this curve.
    """
    safe, known = curve.fewest >= 2, np.isfinite(curve.delta_p.mean)
    if not safe.any():
        return {}
    resampled = np.where(safe, curve.delta_p.resampled, np.nan)
    drawn = resampled[np.isfinite(resampled).any(1)]
    deepest = int(np.nanargmin(np.where(safe, curve.delta_p.mean, np.nan)))
    row = {
        **ends_as_columns("area", *over_layers(curve.delta_p)),
        **ends_as_columns("area_logit", *over_layers(curve.delta_logit)),
        **ends_as_columns("deepest_layer", deepest, np.nanargmin(drawn, 1).astype(np.float64)),
        **ends_as_columns("deepest", float(curve.delta_p.mean[deepest]), drawn[:, deepest]),
    }
    if flip is not None:
        both = known & np.isfinite(flip.delta_p.mean)
        whole = flip.delta_p.mean[both].sum()
        if whole != 0:
            with np.errstate(invalid="ignore", divide="ignore"):
                shares = np.nansum(curve.delta_p.resampled[:, both], 1) / np.nansum(flip.delta_p.resampled[:, both], 1)
            left = float(curve.delta_p.mean[both].sum() / whole)
            row |= ends_as_columns("of_flip", left, np.where(np.isfinite(shares), shares, np.nan))
    return row


@dataclass(frozen=True)
class ReferenceLayers:
    """Which layers are within reach of the best one."""

    chosen: np.ndarray  # [layers], bool
    drawn: np.ndarray  # [resamples, layers], bool: by the AUC of each resample

    @property
    def used(self) -> np.ndarray:
        """Layers where examples are labelled."""
        return np.flatnonzero(self.chosen | (self.drawn.mean(0) > RARE))


def reference_layers(
    clean: np.ndarray, hallucinated: np.ndarray, resamples: Resamples, pool: ThreadPoolExecutor
) -> ReferenceLayers:
    """From clean logits [repeats, layers, examples] of the probes behind P."""
    area = np.mean([auc(logits, hallucinated) for logits in clean], axis=0)
    by_example = np.ascontiguousarray(resamples.weights.T)
    rows = clean.reshape(-1, clean.shape[-1])
    by_row = pool.map(lambda row: resampled_auc(row, hallucinated, by_example), rows)
    drawn = np.stack(list(by_row)).reshape(*clean.shape[:2], -1).mean(0).T
    best = int(np.argmax(area))
    reach = float(drawn[:, best].std())
    return ReferenceLayers(area >= area[best] - reach, drawn >= drawn.max(1, keepdims=True) - reach)


def resampled_auc(logits: np.ndarray, positive: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Area under the ROC curve [resamples] of logits [examples], by weights [examples, resamples]; a tie counts half.

    Each positive example wins against the negatives below it, whose weights are summed once, from the lowest up.
    """
    above = np.flatnonzero(positive)
    below = np.flatnonzero(~positive)[np.argsort(logits[~positive], kind="stable")]
    sums = np.zeros((1 + len(below), weights.shape[1]), weights.dtype)  # of none, of the lowest, of two, ...
    for number, lowest in enumerate(below):  # `cumsum` goes along one resample at a time, eight times as slowly
        np.add(sums[number], weights[lowest], out=sums[number + 1])
    fewer, more = (np.searchsorted(logits[below], logits[above], side) for side in ("left", "right"))
    drawn = weights[above]
    beaten = sums[fewer] if np.array_equal(fewer, more) else (sums[fewer] + sums[more]) / 2
    return np.einsum("ij,ij->j", drawn, beaten) / (drawn.sum(0) * sums[-1])


def curves_labelled_at(results: list[RoleResult], resamples: Resamples, layers: np.ndarray) -> list[dict[str, Curve]]:
    """The curve of each anchor with labels at one layer, for each of some layers."""
    labels = [result.question_anchored[:, layers].swapaxes(0, 1)[:, :, None] for result in results]
    return [curves_of(sums, resamples) for sums in _sums_by_labels(results, labels, resamples)]


def reference_curves(by_layer: list[dict[str, Curve]], layers: ReferenceLayers) -> dict[str, Curve]:
    """The curve of each anchor, averaged over the layers that are reference layers, where examples are labelled."""
    once, drawn = layers.chosen[layers.used, None, None], layers.drawn[:, layers.used].T[..., None]
    return {anchor: average_curves([found[anchor] for found in by_layer], once, drawn) for anchor in by_layer[0]}
