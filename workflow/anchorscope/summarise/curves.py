"""Mean delta P by layer of each group of examples, with the resamples behind its intervals."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl

from anchorscope.probe.anchor_rules import role_columns
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


def curves(pairs: list[tuple[np.ndarray, np.ndarray]], weights: np.ndarray) -> dict[str, Curve]:
    """The curve of each anchor, from (question_anchored, delta P) of each role, all [layers, examples].

    `weights` are resamples [draws, examples].
    """
    once = np.ones((1, weights.shape[1]))
    counts = [np.stack([mask.sum(1), (~mask).sum(1), np.full(len(mask), mask.shape[1])]) for mask, _ in pairs]
    means, _ = _over_roles(group_means(once, *pair) for pair in pairs)
    resampled, shares = _over_roles(group_means(weights, *pair) for pair in pairs)
    found = {}
    for number, anchor in enumerate(("question", "answer", "all")):
        n = np.mean([count[number] for count in counts], axis=0)
        found[anchor] = Curve(
            n=n,
            fewest=np.min([count[number] for count in counts], axis=0),
            mean=means[number][0],
            resampled=resampled[number],
            share=n / weights.shape[1],
            resampled_share=shares[number],
        )
    question, answer = found["question"], found["answer"]
    found["gap"] = Curve(
        n=found["all"].n,
        fewest=np.minimum(question.fewest, answer.fewest),
        mean=question.mean - answer.mean,
        resampled=question.resampled - answer.resampled,
        share=found["all"].share,
        resampled_share=found["all"].resampled_share,
    )
    return found


def _over_roles(found: Iterable[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, ...]:
    """The mean over roles of what each gives."""
    return tuple(np.mean(values, axis=0) for values in zip(*found, strict=True))


def roles(unit: pl.DataFrame, rule: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """(question_anchored, delta P) of each role, [layers, examples]; roles that were not measured are left out.

    `unit` is the delta table of one component, position and intervention, sorted by layer and id.
    """
    layers = unit["layer"].n_unique()
    pairs = []
    for columns in role_columns(rule):
        if all(unit[column].null_count() == 0 for column in columns):
            anchored, delta = (unit[column].to_numpy().reshape(layers, -1) for column in columns)
            pairs.append((anchored, delta.astype(np.float64)))
    return pairs


def layer_rows(curve: Curve) -> pl.DataFrame:
    """One row a layer: n, share and delta P with their intervals. An interval needs two examples."""
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

    With `flip`, the same group's curve under that rule, also the share of its area that is left under this one.
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
