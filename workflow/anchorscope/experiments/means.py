"""Means of the two groups by layer with their resamples, as they are or at equal clean logit, and their rows."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from anchorscope.experiments.groups import RULES, Grouping, Groups
from anchorscope.experiments.names import ACCURACY, ENOUGH, EQUAL_LOGIT, FLIPS, UNSURE
from anchorscope.summarise.bootstrap import Resamples, ends, interval, known_mean
from anchorscope.summarise.curves import Uncertain, over_layers
from anchorscope.summarise.grouping import by_layer

RATES = (FLIPS, ACCURACY, UNSURE)  # measures in percent; an interval ends at 0 and 100
BINS = 6  # of the clean logit on either side of zero
MEANS_SCHEMA: dict[str, Any] = {
    **dict.fromkeys(("measure", "condition", "stratum", "rule", "anchor"), pl.String),
    "layer": pl.Int16,  # null: the mean over layers
    "n": pl.Int64,
    **dict.fromkeys(("value", "low", "high"), pl.Float64),
    "resampled": pl.List(pl.Float32),  # of a mean over layers
}
Array = np.ndarray
Change = Callable[[Array, Array], Array]  # of clean and changed logits
Strata = Callable[[pl.DataFrame, Array, Groups], Mapping[str, Array]]  # of a pass's scores, clean logits and groups


@dataclass(frozen=True)
class LayerMeans:
    """One number for each layer."""

    n: Array  # [layers], examples behind it; the mean over repeats
    fewest: Array  # [layers], examples in the smallest group and repeat behind it
    value: Uncertain


def by_anchor(values: Array, grouping: Grouping, resamples: Resamples) -> dict[str, LayerMeans]:
    """The mean of values [repeats, layers, examples] in each group, and the gap: question minus answer."""
    inside = grouping.question_anchored
    question = _group_mean(values, grouping.counted & inside, grouping, resamples)
    answer = _group_mean(values, grouping.counted & ~inside, grouping, resamples)
    gap = LayerMeans(
        n=question.n + answer.n,
        fewest=np.minimum(question.fewest, answer.fewest),
        value=question.value - answer.value,
    )
    return {"question": question, "answer": answer, "gap": gap}


def _group_mean(values: Array, mask: Array, grouping: Grouping, resamples: Resamples) -> LayerMeans:
    """The mean of values over those in a mask, both [repeats, layers, examples]."""
    count = mask.sum(-1)
    values = np.where(mask, values, 0.0)

    def means(weights: Array) -> Array:
        """[repeats, resamples, layers]"""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.stack([(weights @ some.T) / (weights @ of.T) for some, of in zip(values, mask, strict=True)])

    once, drawn = means(grouping.stands_for[None]), means(resamples.weights * grouping.stands_for)
    return LayerMeans(count.mean(0), count.min(0), _over_repeats(once, drawn, grouping, resamples))


def _over_repeats(once: Array, drawn: Array, grouping: Grouping, resamples: Resamples) -> Uncertain:
    """Averaged over the first axis of [repeats, resamples, layers]."""
    mean, moved = resamples.over_repeats(once[:, 0], grouping.share_learnt)
    return Uncertain(mean, known_mean(drawn) + moved)


def matched_gap(values: Array, grouping: Grouping, resamples: Resamples) -> LayerMeans:
    """The gap at equal clean logit of the probe that labels: differences within bins of it, none of which spans zero.

    Values are [repeats, layers, examples]. A bin weighs as much as it can tell: the product of both groups' weights,
    divided by their sum.
    """
    once, drawn, sizes = [], [], []
    repeats = zip(values, grouping.question_anchored, grouping.counted, grouping.labelling, strict=True)
    for value, inside, counted, logit in repeats:
        member = counted[:, None] & (bins(logit)[:, None] == np.arange(2 * BINS)[:, None])  # [layers, bins, examples]
        groups = np.stack([member & inside[:, None], member & ~inside[:, None]])
        sums = groups * np.where(counted, value, 0.0)[:, None]
        once.append(_within_bins(grouping.stands_for[None], groups, sums))
        drawn.append(_within_bins(resamples.weights * grouping.stands_for, groups, sums))
        count = groups.sum(-1)  # [groups, layers, bins]
        sizes.append((count * (count.min(0) > 0)).sum(-1))  # of bins that have both groups
    size = np.stack(sizes)  # [repeats, groups, layers]
    averaged = _over_repeats(np.stack(once), np.stack(drawn), grouping, resamples)
    return LayerMeans(n=size.sum(1).mean(0), fewest=size.min((0, 1)), value=averaged)


def _within_bins(weights: Array, groups: Array, sums: Array) -> Array:
    """The difference of two groups [groups, layers, bins, examples], averaged over bins: [resamples, layers]."""
    shape = (len(weights), *groups.shape[:3])
    size, total = (
        (weights @ some.reshape(-1, some.shape[-1]).T.astype(np.float64)).reshape(shape) for some in (groups, sums)
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        apart = np.nan_to_num(total[:, 0] / size[:, 0] - total[:, 1] / size[:, 1])
        weight = np.nan_to_num(size[:, 0] * size[:, 1] / size.sum(1))
        return (weight * apart).sum(-1) / weight.sum(-1)


def bins(logits: Array) -> Array:
    """The bin of each of some logits [layers, examples]: equally many on each side of zero, of equal size there."""
    found = np.empty(logits.shape, int)
    for row, place in zip(logits, found, strict=True):
        for side, first in ((row < 0, 0), (row >= 0, BINS)):
            rank = np.argsort(np.argsort(row[side], kind="stable"), kind="stable")
            place[side] = first + rank * BINS // max(1, side.sum())
    return found


def rows(curve: LayerMeans, **names: str | None) -> Iterator[dict]:
    """One row per layer and one for the mean over layers, by `MEANS_SCHEMA`. An interval needs two examples."""
    low, high = (np.where(curve.fewest >= 2, end, np.nan) for end in interval(curve.value.resampled))
    if names["measure"] in RATES and names["anchor"] != "gap":
        low, high = low.clip(0, 100), high.clip(0, 100)
    for layer, (n, value, least, most) in enumerate(zip(curve.n, curve.value.mean, low, high, strict=True)):
        yield {**names, "layer": layer, "n": round(n), "value": value, "low": least, "high": most}
    yield {**names, "layer": None, **area(curve)}


def rows_of_groups(
    values: Array, grouping: Grouping, resamples: Resamples, *, matched: bool, **names: str
) -> Iterator[dict]:
    """The rows of both groups and of the gap; if `matched`, also of the gap at equal clean logit."""
    for anchor, curve in by_anchor(values, grouping, resamples).items():
        yield from rows(curve, **names, anchor=anchor)
    if matched:
        curve = matched_gap(values, grouping, resamples)
        yield from rows(curve, **{**names, "stratum": EQUAL_LOGIT}, anchor="gap")


def rows_of_passes(
    passes: Sequence[str],
    changes: Mapping[str, Change],  # by measure
    scores: pl.DataFrame,
    groups: Groups,
    resamples: Resamples,
    *,
    strata: Strata = lambda unit, clean, groups: {"all": np.ones(clean.shape[-1], bool)},
    matched: bool = False,
) -> Iterator[dict]:
    """What each of the passes that were run does to the probe, by group and layer, for all examples and other strata.

    If `matched`, the gap of all examples is also given at equal clean logit.
    """
    known = scores.with_columns(pl.col("^logit_.*$").cast(pl.Float64).fill_null(np.nan))
    for condition in passes:
        unit = known.filter(intervention=condition).sort("repeat", "layer", "id")
        if unit.is_empty():
            continue
        own = unit.head(len(groups.examples))["id"]
        if not own.equals(groups.examples["id"]) or len(unit) != groups.by_rule["flip"].labelling.size:
            raise ValueError("The experiment's scores and the delta table hold different examples; delete one of them.")
        for rule, grouping in groups.by_rule.items():
            probe = RULES[rule].measures.name
            clean, changed = (by_layer(unit, f"logit_{state}_{probe}") for state in ("clean", "ko"))
            for stratum, members in strata(unit, clean, groups).items():
                some = replace(grouping, counted=np.isfinite(changed) & members)
                if not some.counted.any():
                    continue
                names = {"condition": condition, "stratum": stratum, "rule": rule}
                for measure, change in changes.items():
                    of_all = matched and stratum == "all"
                    values = change(clean, changed)
                    yield from rows_of_groups(values, some, resamples, matched=of_all, measure=measure, **names)


def area(curve: LayerMeans) -> dict:
    """The mean over layers in which every group has enough examples; no value where there is no such layer."""
    used = (curve.fewest >= ENOUGH) & np.isfinite(curve.value.mean)
    if not used.any():
        return {"n": 0}
    value, drawn = over_layers(curve.value, used)
    low, high = ends(drawn)
    resampled = drawn.astype(np.float32).tolist()
    return {"n": round(curve.n[used].mean()), "value": value, "low": low, "high": high, "resampled": resampled}


def to_table(some: Iterator[dict], **more: Any) -> pl.DataFrame:
    """Rows as `MEANS_SCHEMA` has them, with more columns; nothing in place of NaN."""
    found = pl.DataFrame(list(some), schema={**MEANS_SCHEMA, **more}, orient="row")
    return found.with_columns(pl.col(pl.Float64).fill_nan(None))
