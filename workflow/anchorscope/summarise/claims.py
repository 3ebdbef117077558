"""The six claims behind the published figure, each judged by an interval.

A claim says that an effect lies in some region. It is supported when the whole 95 % interval lies inside the region,
contradicted when it lies outside, and undecided otherwise. Groups are those of `replicate`: under `flip` even noise
shows the published gap.
"""

from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import NormalDist

import numpy as np
import polars as pl

from anchorscope.summarise.bootstrap import interval

RULE = "replicate"
NEAR_ZERO = 10.0  # points that a flat curve may be away from zero; as far as the published ones are
SIMILAR = 25.0  # points between two datasets in a third of the depth; the published ones lie within that
NOTHING = 5.0  # points that the control may do
BEGINNING = 8  # "the first layers" are one in so many
LARGER = 1.2  # a larger model has at least so many times the parameters
STATEMENTS = {
    1: "Question-Anchored lies below Answer-Anchored",
    2: f"Answer-Anchored stays within {NEAR_ZERO:.0f} points of zero in every layer",
    3: "the Question-Anchored curve deepens after the first layers",
    4: "the larger model of the family goes deeper",
    5: f"the datasets' Question-Anchored curves are within {SIMILAR:.0f} points of each other in every third of depth",
    6: f"the random control moves the probe by at most {NOTHING:.0f} points in every layer",
}
EFFECTS = {
    1: "gap, mean over layers",
    2: "Answer-Anchored ΔP in its farthest layer",
    3: "later layers minus the first ones",
    4: "deepest ΔP, larger minus smaller model",
    5: "largest difference of two datasets in a third of the depth",
    6: "ΔP under the control in its farthest layer",
}
BELOW_ZERO = (-np.inf, 0.0)


@dataclass(frozen=True)
class Measured:
    """One curve: its means [layers] and resamples [draws, layers]; layers without an estimate are NaN."""

    mean: np.ndarray
    resampled: np.ndarray


@dataclass(frozen=True)
class Run:
    """The headline's curves of one model on one dataset."""

    model: str
    dataset: str
    question: Measured
    answer: Measured
    gap: Measured
    control: Measured  # all examples, random_question
    reads_truth: bool  # whether the reference layer's probe is better than chance


def read_run(model: str, dataset: str, summary: pl.DataFrame, resampled: pl.DataFrame, layers: pl.DataFrame) -> Run:
    """From the tables of one model on one dataset, `summary` and `layers` cut down to the headline."""

    def measured(anchor: str, intervention: str) -> Measured:
        wanted = {"rule": RULE, "anchor": anchor, "intervention": intervention}
        mean = summary.filter(**wanted).sort("layer")["delta_p"].cast(pl.Float64).to_numpy().astype(np.float64)
        drawn = resampled.filter(**wanted).sort("draw")["delta_p"].to_numpy().astype(np.float64)
        return Measured(mean, drawn.reshape(-1, len(mean)))

    return Run(
        model,
        dataset,
        *(measured(anchor, "exact_question") for anchor in ("question", "answer", "gap")),
        control=measured("all", "random_question"),
        reads_truth=reads_truth(layers),
    )


def reads_truth(layers: pl.DataFrame) -> bool:
    """Whether the best layer's clean AUC is above one half, allowing for its choice among all layers (Bonferroni)."""
    clean = layers.filter(intervention="clean")
    best = clean.filter("is_reference").row(0, named=True)
    error = (best["auc_high"] - best["auc_low"]) / (2 * 1.96)
    return best["auc"] - NormalDist().inv_cdf(1 - 0.025 / len(clean)) * error > 0.5


def beside_null(series: pl.DataFrame, runs: list[Run]) -> list[dict]:
    """The headline's gap beside what one mechanism would give, mean over layers, for each model and dataset.

    Whether it is beyond that is not said where the probe reads nothing.
    """
    read = pl.DataFrame(
        [(run.model, run.dataset, run.reads_truth) for run in runs],
        schema={"model": pl.String, "dataset": pl.String, "reads_truth": pl.Boolean},
        orient="row",
    )
    return (
        series.filter(rule=RULE, anchor="gap", intervention="exact_question")
        .drop_nulls(["area", "area_null"])
        .select(
            "model", "dataset", *(f"{name}{end}" for name in ("area", "area_null") for end in ("", "_low", "_high"))
        )
        .join(read, on=["model", "dataset"], maintain_order="left")
        .with_columns(beyond=pl.when("reads_truth").then(pl.col("area_high") < pl.col("area_null_low")))
        .drop("reads_truth")
        .to_dicts()
    )


def judge(low: float, high: float, region: tuple[float, float]) -> str:
    """By where the interval lies."""
    if region[0] <= low and high <= region[1]:
        return "supported"
    return "contradicted" if high < region[0] or low > region[1] else "undecided"


def larger_neighbours(families: list[list[str]], parameters: dict[str, int]) -> list[tuple[str, str]]:
    """Neighbours in a family of which the second is the larger model; two of one size have no larger one."""
    pairs = [pair for family in families for pair in pairwise(family)]
    return [(first, second) for first, second in pairs if parameters[second] > LARGER * parameters[first]]


def judge_claims(runs: list[Run], sizes: list[tuple[str, str]]) -> list[dict]:
    """Every claim for every model on each dataset and on all of them, and for every smaller model and a larger one."""
    found = []
    for model in dict.fromkeys(run.model for run in runs):
        mine = [run for run in runs if run.model == model]
        for some in [*([run] for run in mine), *([mine] if len(mine) > 1 else [])]:
            found += _model_claims(some)
        found.append(_similar(mine))
    found += [_deeper(runs, smaller, larger) for smaller, larger in sizes]
    return sorted(found, key=lambda row: row["claim"])


def _model_claims(runs: list[Run]) -> list[dict]:
    """The claims about one model on some datasets; those whose probe reads nothing have no say."""
    about = {"model": runs[0].model, "dataset": runs[0].dataset if len(runs) == 1 else None}
    usable = [run for run in runs if run.reads_truth]
    if not usable:
        return [_undecided(number, about, "the probe is no better than chance") for number in (1, 2, 3, 6)]
    return [
        _difference(1, about, [_area(run.gap) for run in usable], BELOW_ZERO),
        _everywhere(2, about, [run.answer for run in usable], NEAR_ZERO),
        _difference(3, about, [_deepening(run.question) for run in usable], BELOW_ZERO),
        _everywhere(6, about, [run.control for run in usable], NOTHING),
    ]


def _area(curve: Measured) -> tuple[float, np.ndarray]:
    """The mean over layers: estimate, and resamples [draws]."""
    known = np.isfinite(curve.mean)
    return _mean(curve.mean[known]), _means(curve.resampled[:, known])


def _deepening(curve: Measured) -> tuple[float, np.ndarray]:
    """Later layers minus the first ones."""
    first = -(-len(curve.mean) // BEGINNING)
    early, late = (Measured(curve.mean[part], curve.resampled[:, part]) for part in (slice(first), slice(first, None)))
    (one, ones), (two, twos) = _area(early), _area(late)
    return two - one, twos - ones


def _deeper(runs: list[Run], smaller: str, larger: str) -> dict:
    """Claim 4: the deepest layer of each model, averaged over the datasets that both were measured on."""
    about = {"model": f"{larger} against {smaller}", "dataset": None}
    by_name = {(run.model, run.dataset): run for run in runs if run.reads_truth}
    shared = [name for model, name in by_name if model == smaller and (larger, name) in by_name]
    if not shared:
        return _undecided(4, about, "there is no dataset on which both models' probes are better than chance")
    differences = []
    for name in shared:
        (one, ones), (two, twos) = (_deepest(by_name[model, name].question) for model in (smaller, larger))
        count = min(len(ones), len(twos))
        differences.append((two - one, twos[:count] - ones[:count]))
    return _difference(4, about, differences, BELOW_ZERO)


def _deepest(curve: Measured) -> tuple[float, np.ndarray]:
    """The lowest mean, and what that layer has in each resample."""
    if not np.isfinite(curve.mean).any():
        return np.nan, np.full(len(curve.resampled), np.nan)
    layer = int(np.nanargmin(curve.mean))
    return float(curve.mean[layer]), curve.resampled[:, layer]


def _similar(runs: list[Run]) -> dict:
    """Claim 5: every pair of datasets in every third of the depth, at once."""
    about = {"model": runs[0].model, "dataset": None}
    usable = [run for run in runs if run.reads_truth]
    if len(usable) < 2:
        return _undecided(5, about, "fewer than two datasets have a probe that is better than chance")
    estimates, resamples = [], []
    for one, two in combinations(usable, 2):
        for part in np.array_split(np.arange(len(one.question.mean)), 3):
            if not len(part):
                continue
            (first, firsts), (second, seconds) = (
                _area(Measured(run.question.mean[part], run.question.resampled[:, part])) for run in (one, two)
            )
            estimates.append(first - second)
            resamples.append(firsts - seconds)
    return _everywhere(5, about, [Measured(np.array(estimates), np.stack(resamples, axis=1))], SIMILAR)


def _difference(
    number: int, about: dict, estimates: list[tuple[float, np.ndarray]], region: tuple[float, float]
) -> dict:
    """A claim about one number, averaged over datasets; those without an estimate are left out."""
    known = [(value, drawn) for value, drawn in estimates if np.isfinite(value)]
    if not known:
        return _undecided(number, about, "a group has no examples")
    effect = float(np.mean([value for value, _ in known]))
    low, high = (float(end[0]) for end in interval(np.mean([drawn for _, drawn in known], axis=0)[:, None]))
    return _row(number, about, judge(low, high, region), effect, low, high)


def _everywhere(number: int, about: dict, curves: list[Measured], bound: float) -> dict:
    """A claim that every layer of every curve lies within `bound` of zero, by a band that holds for all at once."""
    mean = np.concatenate([curve.mean for curve in curves])
    resampled = np.concatenate([curve.resampled for curve in curves], axis=1)
    known = np.isfinite(mean) & (np.isfinite(resampled).mean(0) > 0.5)
    if not known.any():
        return _undecided(number, about, "a group has no examples")
    mean, resampled = mean[known], resampled[:, known]
    error = np.nanstd(resampled, axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        distance = np.nan_to_num(np.abs(resampled - mean) / error)
    reach = np.quantile(distance.max(1), 0.95) * error
    verdicts = [judge(*ends, (-bound, bound)) for ends in zip(mean - reach, mean + reach, strict=True)]
    if "contradicted" in verdicts:
        verdict = "contradicted"
    else:
        verdict = "supported" if set(verdicts) == {"supported"} else "undecided"
    far = int(np.argmax(np.abs(mean)))
    return _row(number, about, verdict, *map(float, (mean[far], mean[far] - reach[far], mean[far] + reach[far])))


def _row(number: int, about: dict, verdict: str, effect: float, low: float, high: float) -> dict:
    return {"claim": number, **about, "verdict": verdict, "effect": effect, "low": low, "high": high, "because": None}


def _undecided(number: int, about: dict, because: str) -> dict:
    return {"claim": number, **about, "verdict": "undecided", "effect": None, "low": None, "high": None} | {
        "because": because
    }


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else np.nan


def _means(resampled: np.ndarray) -> np.ndarray:
    """The mean over layers of each resample, NaN where it has none."""
    known = np.isfinite(resampled)
    with np.errstate(invalid="ignore"):
        return np.where(known, resampled, 0.0).sum(1) / known.sum(1)
