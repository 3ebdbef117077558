"""The headline's estimates for parts of the examples: strata, and forms of questions and answers.

Are the groups forms of questions? How many of each group have each form, and the headline's gap at equal form.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import reduce

import numpy as np
import polars as pl

from anchorscope.probe.anchor_rules import HONEST
from anchorscope.summarise.bootstrap import Resamples
from anchorscope.summarise.curves import (
    Curve,
    GroupSums,
    average_curves,
    curve_rows,
    curves,
    curves_of,
    series_row,
    sums_of,
)
from anchorscope.summarise.grouping import (
    LABELLED_UNDER,
    POPULARITY,
    PlaceLogits,
    RoleResult,
    by_layer,
    group,
    thirds,
)
from anchorscope.text.forms import ANSWER_FORMS, QUESTION_FORMS

DISTANCE = ("near", "farther", "farthest")
LOOKED_AT = (("flip", "measured"), ("honest", "measured"), ("honest", "recentred"))  # rules and logits
ALL, EQUAL, COVERED = "all", "equal", "covered"  # what stands for a form in rows that are about several
FORMS: dict[str, dict[str, str | bool]] = {  # by grouping: what its forms are called, and the values they stand for
    "question_form": {form: form for form in QUESTION_FORMS},
    "answer_form": {form: form for form in ANSWER_FORMS},
    "answer_in_question": {"no": False, "yes": True},
}
MIN_EXAMPLES = 40  # of a form whose gap is shown
MIN_PER_GROUP = 5  # examples of a form in each group, so that it counts in the gap at equal form
SCHEMA = {
    **dict.fromkeys(("rule", "logits", "grouping", "form"), pl.String),
    **dict.fromkeys(("n", "n_right"), pl.Int64),
    **dict.fromkeys(
        ("share", "share_question", "share_answer", "question_anchored", "gap", "gap_low", "gap_high"), pl.Float64
    ),
}


def strata_table(
    delta: pl.DataFrame, place: PlaceLogits, resamples: Resamples, pool: ThreadPoolExecutor
) -> pl.DataFrame:
    """The curves of each stratum, one row per intervention, rule, anchor and layer; `delta` has the headline's rows.

    | stratum | |
    |---|---|
    | right, hallucinated | by the answer |
    | judged_right, judged_hallucinated | by the clean verdict of the probe that labels, at the layer |
    | unpopular, middling, popular | thirds by popularity, where the dataset has it |
    | near, farther, farthest | thirds by the distance of the knocked-out state from clean ones, at the layer |
    """
    found = []
    for (intervention,), unit in delta.partition_by("intervention", as_dict=True, maintain_order=True).items():
        for rule in ("flip", HONEST):
            results = group(place, rule, intervention, "measured")
            for stratum, members in _strata(unit, results).items() if results else ():
                some = [result.among(part) for result, part in zip(results, members, strict=True)]
                if any(result.counted.any() for result in some):
                    names = {"intervention": intervention, "stratum": stratum, "rule": rule}
                    found.append((names, pool.submit(curves, some, resamples)))
    return pl.concat(
        curve_rows(curve, **names, anchor=anchor)
        for names, by_anchor in found
        for anchor, curve in by_anchor.result().items()
    )


def _strata(unit: pl.DataFrame, results: list[RoleResult]) -> dict[str, list[np.ndarray]]:
    """Who is in each stratum, as each role sees it, from one intervention's rows, sorted by repeat, layer and id."""
    hallucinated, known, distance = (by_layer(unit, name) for name in ("hallucinated", "popularity", "distance"))
    known = known.astype(np.float64)
    popularity = _thirds(known, POPULARITY) if np.isfinite(known[0, 0]).sum() >= len(POPULARITY) else {}
    return {
        "right": [~hallucinated] * len(results),
        "hallucinated": [hallucinated] * len(results),
        "judged_right": [result.judged_right for result in results],
        "judged_hallucinated": [~result.judged_right for result in results],
        **{name: [third] * len(results) for name, third in (_thirds(distance, DISTANCE) | popularity).items()},
    }


def _thirds(values: np.ndarray, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Thirds by values [repeats, layers, examples] within each layer; unknown values are in none."""
    third = thirds(values, values)
    return {name: third == number for number, name in enumerate(names)}


def forms_table(
    examples: pl.DataFrame, place: PlaceLogits, resamples: Resamples, pool: ThreadPoolExecutor
) -> pl.DataFrame:
    """One row per rule, logits, grouping and form; `examples` has one row per example, in the order of the logits.

    A gap is the mean over layers. That of a form is of its own examples, if there are enough. At `equal` form it is the
    mean of the forms' gaps, each weighing as many examples as have the form. Forms that are too rare in a group at a
    layer are left out there: `n` and `share` say how many examples are covered. The gap that is `covered` is of the
    same examples and layers, whatever their form.
    """

    def look(rule: str, logits: str) -> list[dict]:
        results = group(place, rule, LABELLED_UNDER, logits)
        return [{"rule": rule, "logits": logits, **row} for row in _rows(examples, results, resamples)]

    by_look = pool.map(lambda looked_at: look(*looked_at), LOOKED_AT)
    return pl.DataFrame([row for rows in by_look for row in rows], schema=SCHEMA)


def _rows(examples: pl.DataFrame, results: list[RoleResult], resamples: Resamples) -> Iterator[dict]:
    right, everyone = ~examples["hallucinated"].to_numpy(), np.ones(len(examples), bool)
    whole = _gap(curves(results, resamples)["gap"])
    yield {"grouping": ALL, "form": ALL, **_about(everyone, right, results), **whole}
    for grouping, forms in FORMS.items():
        members = {form: (examples[grouping] == value).fill_null(False).to_numpy() for form, value in forms.items()}
        sums = {
            form: sums_of([result.among(who) for result in results], resamples)
            for form, who in members.items()
            if who.sum() >= 2 * MIN_PER_GROUP
        }
        gaps = {form: curves_of(some, resamples)["gap"] for form, some in sums.items()}
        for form, who in members.items():
            if who.any():
                shown = _gap(gaps[form]) if who.sum() >= MIN_EXAMPLES else {}
                yield {"grouping": grouping, "form": form, **_about(who, right, results), **shown}
        if gaps:
            known = np.stack([members[form] for form in gaps])
            for form, row in _together(known, list(gaps.values()), list(sums.values()), resamples).items():
                yield {"grouping": grouping, "form": form, **row}


def _together(known: np.ndarray, gaps: list[Curve], sums: list[GroupSums], resamples: Resamples) -> dict[str, dict]:
    """The gap of several forms, at equal form and whatever their form: of the examples `known` [forms, examples]."""
    enough = np.stack([gap.fewest >= MIN_PER_GROUP for gap in gaps])  # [forms, layers]
    covered = (enough[:, :, None] & known[:, None]).any(0)  # [layers, examples]
    counts = {"n": round(covered.sum(1).mean()), "share": float(covered.mean())}
    weights = (known.sum(1)[:, None] * enough)[:, None]  # [forms, 1, layers]
    equal = replace(average_curves(gaps, weights, weights), fewest=np.where(enough.any(0), MIN_PER_GROUP, 0))
    whatever = reduce(GroupSums.__add__, [some.at(layers) for some, layers in zip(sums, enough, strict=True)])
    return {EQUAL: counts | _gap(equal), COVERED: counts | _gap(curves_of(whatever, resamples)["gap"])}


def _gap(curve: Curve) -> dict[str, float]:
    """Its mean over layers."""
    row = series_row(curve)
    return {f"gap{end}": row[f"area{end}"] for end in ("", "_low", "_high")} if row else {}


def _about(members: np.ndarray, right: np.ndarray, results: list[RoleResult]) -> dict[str, float | None]:
    """How many they are, which share of each group, and which share of them is Question-Anchored."""
    counted, anchored = (np.stack([getattr(one, name) for one in results]) for name in ("counted", "question_anchored"))
    n = int(members.sum())
    return {
        "n": n,
        "n_right": int((members & right).sum()),
        "share": n / len(members),
        "share_question": _share(members, counted & anchored),
        "share_answer": _share(members, counted & ~anchored),
        "question_anchored": _share(anchored, counted & members),
    }


def _share(part: np.ndarray, whole: np.ndarray) -> float | None:
    """Of the examples of a `whole`, the mean over roles, repeats and layers, without those where it is empty."""
    parts, wholes = (part & whole).sum(-1), whole.sum(-1)
    return float((parts[wholes > 0] / wholes[wholes > 0]).mean()) if wholes.any() else None
