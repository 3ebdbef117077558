"""Token patching and answer-only input: what new passes do to the verdicts of each group, from their logits.

`scores` has the columns of a delta table, and for patching also the donor's popularity; an example that a pass does not
concern has nulls.
"""

from collections.abc import Iterator

import numpy as np
import polars as pl

from anchorscope.experiments.estimates import Sample, rows_of_groups
from anchorscope.experiments.groups import RULES, Grouping, Groups
from anchorscope.experiments.names import FLIPS
from anchorscope.probe.quality import delta_logit, delta_p, flips
from anchorscope.summarise.bootstrap import Resamples
from anchorscope.summarise.grouping import by_layer

PATCHES = ("patch_question", "patch_random", "patch_right")
ANSWERS = ("answer_only", "answer_after_other")
DELTA_P, DELTA_LOGIT = "delta_p", "delta_logit"


def patching_rows(scores: pl.DataFrame, groups: Groups, resamples: Resamples) -> Iterator[dict]:
    """How often each patch flips the verdict, by group and layer, for all examples and for parts of them."""
    for condition, unit, rule, grouping in _units(scores, PATCHES, groups):
        clean, changed = _logits(unit, rule)
        flipped = 100.0 * flips(clean, changed)
        for stratum, members in _strata(unit, clean, groups).items():
            counted = np.isfinite(changed) & members
            if counted.any():
                sample, matched = _sample(grouping, counted), grouping.labelling if stratum == "all" else None
                names = {"measure": FLIPS, "condition": condition, "stratum": stratum, "rule": rule}
                yield from rows_of_groups(flipped, sample, resamples, matched, **names)


def answer_only_rows(scores: pl.DataFrame, groups: Groups, resamples: Resamples) -> Iterator[dict]:
    """How far the probe's confidence in its clean verdict moves without the question, by group and layer."""
    for condition, unit, rule, grouping in _units(scores, ANSWERS, groups):
        clean, changed = _logits(unit, rule)
        sample = _sample(grouping, np.isfinite(changed))
        for measure, change in ((DELTA_P, delta_p), (DELTA_LOGIT, delta_logit)):
            names = {"measure": measure, "condition": condition, "stratum": "all", "rule": rule}
            yield from rows_of_groups(change(clean, changed), sample, resamples, None, **names)


def _units(
    scores: pl.DataFrame, conditions: tuple[str, ...], groups: Groups
) -> Iterator[tuple[str, pl.DataFrame, str, Grouping]]:
    """The rows of each condition that was run, sorted by repeat, layer and id, with each rule's groups."""
    for condition in conditions:
        unit = scores.filter(intervention=condition).sort("repeat", "layer", "id")
        if not unit.is_empty():
            _check_examples(unit, groups)
            for rule, grouping in groups.by_rule.items():
                yield condition, unit, rule, grouping


def _check_examples(unit: pl.DataFrame, groups: Groups) -> None:
    own = unit.head(len(groups.examples))["id"]
    if not own.equals(groups.examples["id"]) or len(unit) != groups.by_rule["flip"].labelling.size:
        raise ValueError("The experiment's scores and the delta table hold different examples; delete one of them.")


def _logits(unit: pl.DataFrame, rule: str) -> tuple[np.ndarray, np.ndarray]:
    """Clean and changed logits of the probe that measures under a rule, [repeats, layers, examples]."""
    probe = RULES[rule].measures.name
    clean, changed = (
        by_layer(unit.with_columns(pl.col(name).cast(pl.Float64).fill_null(np.nan)), name)
        for name in (f"logit_clean_{probe}", f"logit_ko_{probe}")
    )
    return clean, changed


def _sample(grouping: Grouping, counted: np.ndarray) -> Sample:
    return Sample(grouping.question_anchored, counted, np.ones(counted.shape[-1]), grouping.trained)


def _strata(unit: pl.DataFrame, clean: np.ndarray, groups: Groups) -> dict[str, np.ndarray]:
    """Parts of the examples, each bool [repeats, layers, examples] or what broadcasts to it.

    | stratum | |
    |---|---|
    | right, hallucinated | by the answer |
    | published | the answer is right, and the probe that measures judges it right |
    | same_popularity | the donor is in the example's own third of popularity, where both are known |
    """
    wrong = groups.hallucinated
    donor = unit.head(len(wrong))["donor_popularity"].cast(pl.Float64).fill_null(np.nan).to_numpy()
    own, other = thirds(groups.popularity, groups.popularity), thirds(donor, groups.popularity)
    return {
        "all": np.ones(len(wrong), bool),
        "right": ~wrong,
        "hallucinated": wrong,
        "published": ~wrong & (clean < 0),
        "same_popularity": (own == other) & (own >= 0),
    }


def thirds(values: np.ndarray, among: np.ndarray) -> np.ndarray:
    """In which third of `among` each value lies, 0 to 2; -1 where that is not known."""
    if np.isfinite(among).sum() < 3:
        return np.full(len(values), -1)
    edges = np.nanquantile(among, [1 / 3, 2 / 3])
    return np.where(np.isfinite(values), (values[:, None] > edges).sum(1), -1)
