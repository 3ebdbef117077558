"""Verdicts on a run's numbers beside others: within, beyond, or not comparable.

A number is *within* where its difference from the other one is at most its reach. Layers count where the group has at
least 20 examples and the probe is better than chance, in both runs; others are drawn faint in the figures.

**Published figures.** They can be read to within `tolerance` points, which is the reach; the difference is how far a
curve lies outside the published range. A curve that is deepest in other layers than the published one is beyond, too.

**Another run.** Both runs have a 95 % interval for every number. A standard error is its width, divided by 2 × 1.96. If
both runs estimate one truth, each from questions of its own, their difference is about normal around zero, with the
variance s² = s₁² + s₂². Runs that share questions differ less, so the rule is on the safe side for them. Behind an
interval are a few repeats only, which in some layers lie close together by chance: so no layer's s² is taken for less
than the mean over its curve. K numbers are compared at once: every layer of every curve, and every gap. The reach of
each is z · s, where the normal distribution has 0.05 / (2K) above z (Bonferroni). If nothing but the sample differs, at
least 95 % of comparisons then have no number beyond, however strongly layers hang together, as far as intervals are
right (docs/statistics.md). A curve is within if all its layers are.

Of pairs of simulated runs on other questions (12 or 20 layers, 120 questions, three repeats), fewer than 1 % have a
number beyond; with each layer's own s², it would be 6 to 19 % (`tests/summarise/test_simulations.py`). There layers are
independent. In the worst case the repeats alone make an interval and layers move together: then the mean over a curve
says no more than a layer, and 24 % have a number beyond, for two curves on four datasets (`tests/compare`).

*Within* does not mean equal: the reach says what difference would have been seen.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import product
from statistics import NormalDist

import polars as pl

from anchorscope.compare.finished import FinishedRun
from anchorscope.compare.matching import Match
from anchorscope.draw.titles import ANCHOR_TITLES
from anchorscope.draw.view import PUBLISHED_PLACE, CurveFilter
from anchorscope.probe.examples import Pair
from anchorscope.summarise.claims import CLAIMS
from anchorscope.summarise.findings import asked_as_published, at_landmark, compare_landmark

WITHIN_REACH, BEYOND_REACH, NOT_COMPARABLE = "within", "beyond", "not comparable"
THE_FIGURES, OTHER_RUN = "published", "other run"
LEVEL = 0.05
IN_ERRORS = 2 * NormalDist().inv_cdf(0.975)  # standard errors in the width of a 95 % interval
GAPS = {"measured": "honest gap, mean over layers", "recentred": "honest gap without the push, mean over layers"}
TOO_LITTLE_HERE = "this run has too few examples there, or a probe no better than chance"
TOO_LITTLE = "one of the runs has too few examples there, or a probe no better than chance"
PAIRED = ("value", "low", "high", "other", "other_low", "other_high")


@dataclass(frozen=True)
class Compared:
    """One number of a run beside another; of a curve, its layer that differs most."""

    model: str
    dataset: str | None  # None: all
    against: str  # published, or other run
    what: str
    verdict: str
    because: str | None = None  # where it is not comparable, or beyond for another reason than its difference
    layer: int | None = None
    value: float | None = None
    low: float | None = None
    high: float | None = None
    other: float | None = None  # of the other run; a published range has only ends
    other_low: float | None = None
    other_high: float | None = None
    difference: float | None = None
    reach: float | None = None  # the largest difference that is within


def beside_published(run: FinishedRun, landmarks: Mapping) -> list[Compared]:
    """Every landmark of every model on each dataset."""
    rows: list[Compared] = []
    for name in run.models:
        because = no_landmarks(run, name, landmarks)
        if because:
            rows.append(Compared(name, None, THE_FIGURES, "curves", NOT_COMPARABLE, because))
        else:
            rows += _at_landmarks(run, name, landmarks["models"][run.models[name].hub], landmarks["tolerance"])
    return rows


def no_landmarks(run: FinishedRun, name: str, landmarks: Mapping) -> str | None:
    """Why a model cannot be compared with the published figures, if so."""
    model = run.models[name]
    marks = landmarks["models"].get(model.hub)
    if not marks:
        return "no landmark was read off the published figures for this model"
    layers = 1 + max(mark["layers"][1] for mark in marks)
    if layers != model.layers:
        return f"other layers: {model.layers} here, {layers} in the published figure"
    if run.headline != PUBLISHED_PLACE:
        there, here = (" at ".join(vars(place).values()) for place in (PUBLISHED_PLACE, run.headline))
        return f"the published figures show {there}, this run's headline is {here}"
    return None


def _at_landmarks(run: FinishedRun, model: str, marks: Iterable[dict], tolerance: float) -> Iterator[Compared]:
    flip = CurveFilter().select(run.curves(run.headline).filter(model=model))
    asked = asked_as_published(flip, run.layouts())
    for dataset in run.datasets:
        mine = asked.filter(dataset=dataset)
        if mine.is_empty():
            probed = dataset in set(flip["dataset"])
            because = "these are not the published questions" if probed else "this run could not probe it"
            yield Compared(model, dataset, THE_FIGURES, "curves", NOT_COMPARABLE, because)
            continue
        sure, layout = mine.filter("sure"), run.datasets[dataset].layout
        for mark in (mark for mark in marks if mark.get("deepest", layout) == layout):
            rows = at_landmark(mark, sure, run.layouts())
            if rows.is_empty():
                yield Compared(model, dataset, THE_FIGURES, mark["name"], NOT_COMPARABLE, TOO_LITTLE_HERE)
            else:
                agrees = compare_landmark(mark, tolerance, sure, run.layouts())["agrees"]
                yield _at_landmark_row(mark, rows, agrees=agrees, tolerance=tolerance)


def _at_landmark_row(mark: Mapping, rows: pl.DataFrame, *, agrees: bool, tolerance: float) -> Compared:
    """The layer that lies farthest outside the published range."""
    (low, high), value = mark["published"], pl.col("delta_p")
    outside = rows.with_columns(difference=value - value.clip(low, high))
    farthest = outside.sort(pl.col("difference").abs(), descending=True, maintain_order=True).row(0, named=True)
    first, last = mark["layers"]
    elsewhere = f"deepest at layer {farthest['layer']}, published at {first} to {last}"
    return Compared(
        **{name: farthest[name] for name in ("model", "dataset", "layer", "low", "high", "difference")},
        against=THE_FIGURES,
        what=mark["name"],
        value=farthest["delta_p"],
        other_low=float(low),
        other_high=float(high),
        reach=float(tolerance),
        verdict=WITHIN_REACH if agrees else BEYOND_REACH,
        because=None if first <= farthest["layer"] <= last else elsewhere,
    )


def beside_other(run: FinishedRun, other: FinishedRun, matches: Iterable[Match]) -> list[Compared]:
    """Both curves under the published rule and the honest gap, for every model and dataset that both runs have."""
    rows, numbers = [], []
    for match in matches:
        if match.other is None:
            rows.append(Compared(match.model, match.dataset, OTHER_RUN, "curves", NOT_COMPARABLE, match.because))
            continue
        pair = (match.model, str(match.dataset))
        for what, known in _paired(run, other, here=pair, there=match.other):
            numbers.append(known.with_columns(model=pl.lit(pair[0]), dataset=pl.lit(pair[1]), what=pl.lit(what)))
            if known.is_empty():
                rows.append(Compared(*pair, OTHER_RUN, what, NOT_COMPARABLE, TOO_LITTLE))
    if numbers:
        together = pl.concat(numbers)
        judged = judge_differences(together, at_once=len(together))
        rows += [
            Compared(against=OTHER_RUN, verdict=BEYOND_REACH if beyond else WITHIN_REACH, **row)
            for row, beyond in _farthest(judged)
        ]
    places = {place: number for number, place in enumerate(product(run.models, [None, *run.datasets]))}
    return sorted(rows, key=lambda row: places[row.model, row.dataset])


def _paired(run: FinishedRun, other: FinishedRun, *, here: Pair, there: Pair) -> Iterator[tuple[str, pl.DataFrame]]:
    """What is compared, by its name: numbers of both runs with their intervals, and layers."""
    mine, theirs = (
        CurveFilter()
        .select(some.curves(run.headline).filter(model=pair[0], dataset=pair[1]))
        .filter("sure")
        .select("anchor", "layer", value="delta_p", low="low", high="high")
        for some, pair in ((run, here), (other, there))
    )
    both = mine.join(
        theirs.rename({"value": "other", "low": "other_low", "high": "other_high"}), on=["anchor", "layer"]
    ).drop_nulls()
    for anchor, title in ANCHOR_TITLES.items():
        yield f"{title} curve", both.filter(anchor=anchor).select(pl.col("layer").cast(pl.Int64), *PAIRED).sort("layer")
    for logits, title in GAPS.items():
        ends = [_gap(some.claims, pair, logits) for some, pair in ((run, here), (other, there))]
        known = None not in (*ends[0], *ends[1])
        schema = {"layer": pl.Int64, **dict.fromkeys(PAIRED, pl.Float64)}
        yield title, pl.DataFrame([(None, *ends[0], *ends[1])] if known else [], schema, orient="row")


def _gap(claims: Iterable[Mapping], pair: Pair, logits: str) -> tuple[float | None, ...]:
    """The gap of the first claim, with its interval."""
    wanted = (CLAIMS["below"].number, *pair, logits)
    found = (row for row in claims if (row["claim"], row["model"], row["dataset"], row["logits"]) == wanted)
    return next(((row["effect"], row["low"], row["high"]) for row in found), (None, None, None))


def judge_differences(numbers: pl.DataFrame, at_once: int) -> pl.DataFrame:
    """Numbers of two runs with their ends, so many compared at once; adds `difference`, `error`, `reach`, `beyond`.

    Those of one `model`, `dataset` and `what` are the layers of a curve.
    """
    quantile = NormalDist().inv_cdf(1 - LEVEL / (2 * max(1, at_once)))
    widths = pl.col("high") - pl.col("low"), pl.col("other_high") - pl.col("other_low")
    variance = (widths[0] ** 2 + widths[1] ** 2) / IN_ERRORS**2
    return (
        numbers.with_columns(
            difference=pl.col("value") - pl.col("other"),
            error=pl.max_horizontal(variance, variance.mean().over("model", "dataset", "what")).sqrt(),
        )
        .with_columns(reach=quantile * pl.col("error"))
        .with_columns(beyond=pl.col("difference").abs() > pl.col("reach"))
    )


def _farthest(judged: pl.DataFrame) -> Iterator[tuple[dict, bool]]:
    """Of each curve the layer that differs by most standard errors, and whether any is beyond."""
    errors_apart = (pl.col("difference").abs() / pl.col("error")).fill_nan(0)
    for _, rows in judged.group_by("model", "dataset", "what", maintain_order=True):
        row = rows.sort(errors_apart, descending=True, maintain_order=True).row(0, named=True)
        yield {key: value for key, value in row.items() if key not in ("error", "beyond")}, bool(rows["beyond"].any())


def as_table(rows: Iterable[Compared]) -> pl.DataFrame:
    numbers = dict.fromkeys((*PAIRED, "difference", "reach"), pl.Float64)
    return pl.DataFrame([asdict(row) for row in rows], schema_overrides={**numbers, "layer": pl.Int64})
