"""Which examples are Question-Anchored under a rule, and what the knockout does to each, from out-of-fold logits.

Logits are looked at with more or less of what the knockout does to all examples alike taken out of them:

| logits | |
|---|---|
| measured | as they are |
| recentred | moved back to the clean mean of their layer and probe: the common push is out |
| residual | without what the clean logit predicts along a line: the common push and the common slope are out |

The mean and the line are those of the other folds, so that no example takes out a part of its own change.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from anchorscope.extract.axes import EXACT
from anchorscope.probe.anchor_rules import HALF_A, PROBES, ROLES, SECOND_B, Probe, Role
from anchorscope.probe.quality import delta_logit, delta_p, flips

LABELLED_UNDER = EXACT
LOGITS = ("measured", "recentred", "residual")
POPULARITY = ("unpopular", "middling", "popular")  # thirds


@dataclass(frozen=True)
class PlaceLogits:
    """The out-of-fold logits of one component and position: arrays [repeats, layers, examples]."""

    clean: dict[str, np.ndarray]  # by probe
    changed: dict[tuple[str, str], np.ndarray]  # by probe and intervention; NaN where it cuts nothing
    folds: np.ndarray  # [repeats, examples]

    @property
    def interventions(self) -> list[str]:
        return list(dict.fromkeys(intervention for _, intervention in self.changed))


@dataclass(frozen=True)
class RoleResult:
    """What one role of a rule says about every example: arrays [repeats, layers, examples]."""

    question_anchored: np.ndarray  # bool
    delta_p: np.ndarray
    delta_logit: np.ndarray
    judged_right: np.ndarray  # bool: the labelling probe's clean verdict
    counted: np.ndarray  # bool: part of the estimate
    share_learnt: float  # the share of the examples that the smaller of its probes learnt from

    def among(self, examples: np.ndarray) -> "RoleResult":
        """Of some examples only."""
        return replace(self, counted=self.counted & examples)


def read_places(delta: pl.DataFrame) -> dict[tuple[str, str], PlaceLogits]:
    """The logits of each component and position, from a delta table sorted by repeat, layer and id."""
    places = {}
    for (component, position), rows in delta.partition_by("component", "position", as_dict=True).items():
        units = rows.partition_by("intervention", as_dict=True)
        places[component, position] = read_place({name: unit for (name,), unit in units.items()})
    return places


def read_place(units: Mapping[str, pl.DataFrame], probes: Iterable[Probe] = PROBES) -> PlaceLogits:
    """The logits of some probes at one place, from the rows of each intervention, sorted by repeat, layer and id."""
    clean, changed = {}, {}
    for intervention, unit in units.items():
        for probe in probes:
            if not unit[f"logit_ko_{probe.name}"].is_null().all():
                clean[probe.name] = by_layer(unit, f"logit_clean_{probe.name}").astype(np.float64)
                changed[probe.name, intervention] = by_layer(unit, f"logit_ko_{probe.name}").astype(np.float64)
    return PlaceLogits(clean, changed, folds=by_layer(unit, "fold")[:, 0])


def both_prompts(place: PlaceLogits) -> tuple[np.ndarray, np.ndarray]:
    """Clean and knocked-out logits [prompts, layers, examples], each prompt by its own probe, averaged over repeats."""
    probes = (HALF_A, SECOND_B)
    return (
        np.stack([place.clean[probe.name].mean(0) for probe in probes]),
        np.stack([place.changed[probe.name, LABELLED_UNDER].mean(0) for probe in probes]),
    )


def mean_logits(delta: pl.DataFrame) -> pl.DataFrame:
    """The logits of each intervention, layer and example, averaged over repeats; none where it cuts nothing."""
    logits = [name for name in delta.columns if name.startswith("logit_")]
    return (
        delta.filter(pl.col("logit_ko_full").is_not_null())
        .group_by("intervention", "layer", "id", maintain_order=True)
        .agg(pl.first("hallucinated"), pl.col(logits).mean())
    )


def by_layer(unit: pl.DataFrame, column: str) -> np.ndarray:
    """A column of one unit's rows as an array [repeats, layers, examples]."""
    return unit[column].to_numpy().reshape(unit["repeat"].n_unique(), unit["layer"].n_unique(), -1)


def group(place: PlaceLogits, rule: str, intervention: str, logits: str) -> list[RoleResult]:
    """What each role of a rule says; roles whose measuring probe did not see the intervention are left out."""
    return [
        _role_result(place, role, intervention, logits)
        for role in ROLES[rule]
        if (role.measures.name, intervention) in place.changed
    ]


def is_question_anchored(clean: np.ndarray, cut: np.ndarray, logits: str) -> np.ndarray:
    """Whether the labelling probe's verdict flips.

    Of residual logits, what is left seldom changes a verdict; there it is whether the logit falls below the line, seen
    from its clean verdict.
    """
    return delta_logit(clean, cut) < 0 if logits == "residual" else flips(clean, cut)


def _role_result(place: PlaceLogits, role: Role, intervention: str, logits: str) -> RoleResult:
    labelled, measured = place.clean[role.labels.name], place.clean[role.measures.name]
    cut, changed = (
        without_push(place.clean[probe.name], place.changed[probe.name, cutting], place.folds, logits)
        for probe, cutting in ((role.labels, LABELLED_UNDER), (role.measures, intervention))
    )
    return RoleResult(
        question_anchored=is_question_anchored(labelled, cut, logits),
        delta_p=np.nan_to_num(delta_p(measured, changed)),
        delta_logit=np.nan_to_num(delta_logit(measured, changed)),
        judged_right=labelled < 0,
        counted=np.isfinite(changed),
        share_learnt=share_learnt_from(role, place.folds),
    )


def share_learnt_from(role: Role, folds: np.ndarray) -> float:
    """The share of the examples that the smaller of a role's probes learns from: all folds but one, or half of them."""
    whole = all(probe.half is None for probe in (role.labels, role.measures))
    return (1 - 1 / len(np.unique(folds))) * (1.0 if whole else 0.5)


def without_push(clean: np.ndarray, changed: np.ndarray, folds: np.ndarray, logits: str) -> np.ndarray:
    """Logits under the knockout [repeats, layers, examples], without what `logits` takes out.

    Folds are [repeats, examples]. Examples in which nothing was cut are NaN, and take no part.
    """
    if logits == "measured":
        return changed
    common, known = np.zeros_like(changed), np.isfinite(changed)
    shift = np.where(known, changed - clean, 0.0)
    for fold in np.unique(folds):
        own = (folds == fold)[:, None]
        level, slope = fit_lines(clean, shift, known & ~own, sloped=logits == "residual")
        common += np.where(own, level + slope * clean, 0.0)
    return changed - common


def fit_lines(
    clean: np.ndarray, shift: np.ndarray, weights: np.ndarray, sloped: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Level and slope [..., 1] of the shift along the clean logit, by least squares over the last axis.

    No slope where it is not `sloped`, or where all clean logits are equal.
    """
    total = weights.sum(-1, keepdims=True)
    middle, moved = ((values * weights).sum(-1, keepdims=True) / total for values in (clean, shift))
    if not sloped:
        return moved, np.zeros_like(moved)
    centred = (clean - middle) * weights
    variation = (centred * (clean - middle)).sum(-1, keepdims=True)
    slope = np.divide((centred * shift).sum(-1, keepdims=True), variation, where=variation > 0, out=0 * variation)
    return moved - slope * middle, slope


def thirds(values: np.ndarray, among: np.ndarray) -> np.ndarray:
    """In which third of `among` [..., examples] each value lies, 0 to 2; -1 where that is not known."""
    if np.isfinite(among).sum() < 3:
        return np.full(values.shape, -1)
    edges = np.nanquantile(among, [1 / 3, 2 / 3], axis=-1)  # [edges, ...]
    return np.where(np.isfinite(values), (values > edges[..., None]).sum(0), -1)
