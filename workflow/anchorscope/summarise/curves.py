"""Mean delta P by layer of each group of examples, with the resamples behind its intervals."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl

from anchorscope.probe.anchor_rules import RoleResult, role_columns
from anchorscope.summarise.bootstrap import group_means, interval

ANCHORS = ("question", "answer", "all", "gap")  # gap: question minus answer


@dataclass(frozen=True)
class Curve:
    """One group's delta P, averaged over the roles of a rule."""

    n: np.ndarray  # [layers], examples in the group
    fewest: np.ndarray  # [layers], examples in its smallest part: in either role, and for a gap in either group
    mean: np.ndarray  # [layers], NaN where there is none
    resampled: np.ndarray  # [draws, layers]
    share: np.ndarray  # [layers], of all examples
    resampled_share: np.ndarray  # [draws, layers]


def curves(results: list[RoleResult], weights: np.ndarray) -> dict[str, Curve]:
    """The curve of each anchor, averaged over roles; `weights` are resamples [draws, examples]."""
    once = np.ones((1, weights.shape[1]))
    masks = [result.question_anchored for result in results]
    counts = [np.stack([mask.sum(1), (~mask).sum(1), np.full(len(mask), mask.shape[1])]) for mask in masks]
    means, _ = _over_roles(group_means(once, role.question_anchored, role.delta_p) for role in results)
    resampled, shares = _over_roles(group_means(weights, role.question_anchored, role.delta_p) for role in results)
    by_anchor = {}
    for number, anchor in enumerate(("question", "answer", "all")):
        n = np.mean([count[number] for count in counts], axis=0)
        by_anchor[anchor] = Curve(
            n=n,
            fewest=np.min([count[number] for count in counts], axis=0),
            mean=means[number][0],
            resampled=resampled[number],
            share=n / weights.shape[1],
            resampled_share=shares[number],
        )
    question, answer, everyone = (by_anchor[anchor] for anchor in ("question", "answer", "all"))
    by_anchor["gap"] = Curve(
        n=everyone.n,
        fewest=np.minimum(question.fewest, answer.fewest),
        mean=question.mean - answer.mean,
        resampled=question.resampled - answer.resampled,
        share=everyone.share,
        resampled_share=everyone.resampled_share,
    )
    return by_anchor


def _over_roles(by_role: Iterable[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, ...]:
    """The mean over roles of what each gives."""
    return tuple(np.mean(values, axis=0) for values in zip(*by_role, strict=True))


def read_role_results(unit: pl.DataFrame, rule: str) -> list[RoleResult]:
    """What each role of a rule says; roles that were not measured are left out.

    `unit` is the delta table of one component, position and intervention, sorted by layer and id.
    """
    layers = unit["layer"].n_unique()
    results = []
    for columns in role_columns(rule):
        if all(unit[column].null_count() == 0 for column in columns):
            anchored, delta = (unit[column].to_numpy().reshape(layers, -1) for column in columns)
            results.append(RoleResult(anchored, delta.astype(np.float64)))
    return results


def curve_rows(curve: Curve) -> pl.DataFrame:
    """One row per layer: n, share and delta P with their intervals. An interval needs two examples."""
    low, high = interval(curve.resampled)
    share_low, share_high = interval(curve.resampled_share)
    known = curve.fewest >= 2
    return pl.DataFrame(
        {
            "layer": np.arange(len(low), dtype=np.int16),
            "n": np.rint(curve.n).astype(np.int64),
            "share": curve.share,
            "share_low": share_low,
            "share_high": share_high,
            "delta_p": curve.mean,
            "low": np.where(known, low, np.nan),
            "high": np.where(known, high, np.nan),
        }
    ).with_columns(pl.col("delta_p", "low", "high").fill_nan(None))


def series_row(curve: Curve, flip: Curve | None = None) -> dict:
    """What a whole curve comes to: its area (the mean over layers) and its deepest layer.

    `flip` is the same group's curve under that rule. With it, also the share of its area that is left in this curve.
    """
    if not (curve.fewest >= 2).any():
        return {}
    known = np.where(curve.fewest >= 2, curve.mean, np.nan)
    resampled = np.where(curve.fewest >= 2, curve.resampled, np.nan)
    drawn = resampled[np.isfinite(resampled).any(1)]
    deepest = int(np.nanargmin(known))
    row = {"area": float(np.nanmean(known)), "deepest_layer": deepest, "deepest": float(known[deepest])}
    estimates = {"area": np.nanmean(drawn, 1), "deepest_layer": np.nanargmin(drawn, 1), "deepest": drawn[:, deepest]}
    if flip is not None:
        both = (curve.fewest >= 2) & (flip.fewest >= 2)
        whole = flip.mean[both].sum()
        if whole != 0:
            row["of_flip"] = float(curve.mean[both].sum() / whole)
            with np.errstate(invalid="ignore", divide="ignore"):
                shares = np.nansum(curve.resampled[:, both], 1) / np.nansum(flip.resampled[:, both], 1)
            estimates["of_flip"] = np.where(np.isfinite(shares), shares, np.nan)
    for name, values in estimates.items():
        low, high = interval(values.astype(np.float64)[:, None])
        row |= {f"{name}_low": float(low[0]), f"{name}_high": float(high[0])}
    return row
