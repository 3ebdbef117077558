"""Mean change by layer of each group of examples, with the resamples behind its intervals."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import polars as pl

from anchorscope.summarise.bootstrap import Resamples, ends, group_means, interval
from anchorscope.summarise.grouping import RoleResult

ANCHORS = ("question", "answer", "all", "gap")  # gap: question minus answer
QUANTITIES = ("delta_p", "delta_logit")  # in percentage points, and in logits


@dataclass(frozen=True)
class Estimate:
    """A number for each layer, NaN where there is none, and its resamples."""

    mean: np.ndarray  # [layers]
    resampled: np.ndarray  # [draws, layers]

    def __sub__(self, other: "Estimate") -> "Estimate":
        return Estimate(self.mean - other.mean, self.resampled - other.resampled)


@dataclass(frozen=True)
class Curve:
    """One group, averaged over the roles of a rule and over repeats."""

    n: np.ndarray  # [layers], examples in the group
    fewest: np.ndarray  # [layers], examples in its smallest part: in any role or repeat, and for a gap in either group
    delta_p: Estimate
    delta_logit: Estimate
    share: Estimate  # of all examples
    judged_right: np.ndarray  # [layers], share of the group whose clean verdict was "right"


def curves(results: list[RoleResult], resamples: Resamples) -> dict[str, Curve]:
    """The curve of each anchor."""
    everyone = np.stack([result.counted.sum(-1) for result in results])  # [roles, repeats, layers]
    inside = np.stack([(result.counted & result.question_anchored).sum(-1) for result in results])
    counts = {"question": inside, "answer": everyone - inside, "all": everyone}
    once, drawn = (
        np.stack([_means(result, weights) for result in results])
        for weights in (np.ones((1, resamples.weights.shape[1])), resamples.weights)
    )  # [roles, repeats, groups, values, draws, layers]
    factors = resamples.factors(results[0].trained)
    found = {}
    for number, (anchor, count) in enumerate(counts.items()):
        delta_p, delta_logit, judged_right, share = (
            over_repeats(once[:, :, number, value], drawn[:, :, number, value], factors) for value in range(4)
        )
        found[anchor] = Curve(
            n=count.mean((0, 1)),
            fewest=count.min((0, 1)),
            delta_p=delta_p,
            delta_logit=delta_logit,
            share=share,
            judged_right=judged_right.mean,
        )
    return {**found, "gap": _gap(found["question"], found["answer"], found["all"])}


def _means(result: RoleResult, weights: np.ndarray) -> np.ndarray:
    """Means of each value by group and resample, and the group's share: [repeats, groups, values, draws, layers]."""
    values = np.stack([result.delta_p, result.delta_logit, result.judged_right.astype(np.float64)])
    by_repeat = []
    for repeat, (inside, counted) in enumerate(zip(result.question_anchored, result.counted, strict=True)):
        means, shares = group_means(weights, inside, counted, values[:, repeat])
        by_repeat.append(np.concatenate([means, shares[:, None]], axis=1))
    return np.stack(by_repeat)


def over_repeats(once: np.ndarray, drawn: np.ndarray, factors: np.ndarray) -> Estimate:
    """Averaged over roles and repeats [roles, repeats, draws, layers]; repeats without an estimate are left out.

    Each resample adds the repeats' distances from their mean, times its `factors` [draws, repeats].
    """
    by_repeat = once.mean(0)[:, 0]  # [repeats, layers]
    mean = known_mean(by_repeat)
    apart = np.nan_to_num(by_repeat - mean)
    return Estimate(mean, known_mean(drawn.mean(0)) + factors @ apart)


def known_mean(values: np.ndarray) -> np.ndarray:
    """The mean over the first axis, without NaN; NaN where there is nothing else."""
    known = np.isfinite(values)
    count = known.sum(0)
    return np.divide(np.where(known, values, 0).sum(0), count, where=count > 0, out=np.full(count.shape, np.nan))


def _gap(question: Curve, answer: Curve, everyone: Curve) -> Curve:
    return Curve(
        n=everyone.n,
        fewest=np.minimum(question.fewest, answer.fewest),
        delta_p=question.delta_p - answer.delta_p,
        delta_logit=question.delta_logit - answer.delta_logit,
        share=everyone.share,
        judged_right=question.judged_right - answer.judged_right,
    )


def average_curves(some: list[Curve], chosen: np.ndarray, drawn: np.ndarray) -> Curve:
    """The mean of those curves that are `chosen` [curves], in each resample of those `drawn` for it [draws, curves]."""

    def average(name: str) -> np.ndarray | Estimate:
        values = [getattr(curve, name) for curve in some]
        if not isinstance(values[0], Estimate):
            return _weighted([chosen], np.stack(values)[:, None])[0]
        return Estimate(
            _weighted([chosen], np.stack([value.mean for value in values])[:, None])[0],
            _weighted(drawn, np.stack([value.resampled for value in values])),
        )

    averaged: dict[str, Any] = {field.name: average(field.name) for field in fields(Curve)}
    return Curve(**averaged)


def _weighted(chosen: np.ndarray | list, values: np.ndarray) -> np.ndarray:
    """Means [draws, layers] of values [curves, draws, layers] over the curves chosen in each draw, where known."""
    weights = np.asarray(chosen, dtype=np.float64).T[..., None] * np.isfinite(values)
    total = weights.sum(0)
    return np.divide((weights * np.nan_to_num(values)).sum(0), total, where=total > 0, out=np.full(total.shape, np.nan))


def curve_rows(curve: Curve) -> pl.DataFrame:
    """One row per layer: n, share and changes with their intervals. An interval needs two examples."""
    known = curve.fewest >= 2
    columns = {"n": np.rint(curve.n).astype(np.int64), "judged_right": curve.judged_right}
    for name, (low, high) in (
        ("share", ("share_low", "share_high")),
        ("delta_p", ("low", "high")),
        ("delta_logit", ("logit_low", "logit_high")),
    ):
        estimate: Estimate = getattr(curve, name)
        needed = True if name == "share" else known
        columns[name] = estimate.mean
        columns[low], columns[high] = (np.where(needed, end, np.nan) for end in interval(estimate.resampled))
    return pl.DataFrame({"layer": np.arange(len(known), dtype=np.int16), **columns}).with_columns(
        pl.col(pl.Float64).fill_nan(None)
    )


def over_layers(estimate: Estimate) -> tuple[float, np.ndarray]:
    """The mean over all layers that have an estimate, and the same of each resample; NaN where there is none."""
    known = np.isfinite(estimate.mean)
    return float(known_mean(estimate.mean[known])), known_mean(estimate.resampled[:, known].T)


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
    row = {"deepest_layer": deepest, "deepest": float(curve.delta_p.mean[deepest])}
    estimates = {"deepest_layer": np.nanargmin(drawn, 1), "deepest": drawn[:, deepest]}
    for name, estimate in (("area", curve.delta_p), ("area_logit", curve.delta_logit)):
        row[name], estimates[name] = over_layers(estimate)
    if flip is not None:
        both = known & np.isfinite(flip.delta_p.mean)
        whole = flip.delta_p.mean[both].sum()
        if whole != 0:
            row["of_flip"] = float(curve.delta_p.mean[both].sum() / whole)
            with np.errstate(invalid="ignore", divide="ignore"):
                shares = np.nansum(curve.delta_p.resampled[:, both], 1) / np.nansum(flip.delta_p.resampled[:, both], 1)
            estimates["of_flip"] = np.where(np.isfinite(shares), shares, np.nan)
    for name, values in estimates.items():
        row[f"{name}_low"], row[f"{name}_high"] = ends(values.astype(np.float64))
    return row
