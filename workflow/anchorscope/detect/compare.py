"""The methods side by side: on one model and dataset, then for all of them, and from one dataset to another.

Besides how well methods rank there are reliability, which says whether probabilities are what they say; risk and
coverage, what is left when doubtful answers go; and whether knowing pathways helps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from anchorscope.detect.areas import areas, gains
from anchorscope.detect.methods import METHODS, OTHERS, PROBE
from anchorscope.files.frames import read_frame
from anchorscope.probe.examples import NOT_PROBED, Pair, not_probed
from anchorscope.probe.quality import CALIBRATION_BINS
from anchorscope.summarise.tables import described

COVERAGES = np.arange(1, 101) / 100
YES, NO, NEITHER = "yes", "no", "undecided"


@dataclass(frozen=True)
class Contest:
    """The scores of all methods for the same examples, methods in the order of all tables."""

    methods: list[str]
    scores: np.ndarray  # [methods, examples]; higher: more likely hallucinated
    p: np.ndarray  # [methods, examples]; probability of "hallucinated"
    hallucinated: np.ndarray  # [examples], bool
    clusters: list[str]
    folds: np.ndarray  # [examples]

    def of(self, method: str) -> np.ndarray:
        """One method's scores, [examples]."""
        return self.scores[self.methods.index(method)]


def contest_of(table: pl.DataFrame, where: str) -> Contest:
    """A table with one row per method and example; a method that lacks examples of another is an error."""
    methods = [name for name in METHODS if name in set(table["method"])]
    by_method = {name: table.filter(method=name).sort("id") for name in methods}
    first = by_method[methods[0]]
    for name, rows in by_method.items():
        if not rows["id"].equals(first["id"]):
            raise ValueError(f"{where}: {name} has scores of other examples than {methods[0]}; make the scores again.")
    scores, p = (
        np.stack([rows[column].cast(pl.Float64).to_numpy() for rows in by_method.values()]) for column in ("score", "p")
    )
    return Contest(
        methods=methods,
        scores=scores,
        p=p,
        hallucinated=first["hallucinated"].to_numpy(),
        clusters=first["cluster"].to_list(),
        folds=first["fold"].to_numpy(),
    )


def reliability(contest: Contest) -> pl.DataFrame:
    """One row per method and bin of P that has examples: how many, their mean P, and how many were hallucinated."""
    which = np.minimum((contest.p * CALIBRATION_BINS).astype(int), CALIBRATION_BINS - 1)  # [methods, examples]
    long = pl.DataFrame(
        {
            "method": np.repeat(contest.methods, contest.p.shape[1]),
            "bin": which.ravel(),
            "p": contest.p.ravel(),
            "hallucinated": np.tile(contest.hallucinated, len(contest.methods)),
        }
    )
    bins = long.group_by("method", "bin", maintain_order=True).agg(
        n=pl.len(), p=pl.col("p").mean(), hallucinated_share=pl.col("hallucinated").mean()
    )
    return bins.sort(pl.col("method").cast(pl.Enum(contest.methods)), "bin")


def risks(scores: np.ndarray, hallucinated: np.ndarray) -> np.ndarray:
    """The share of hallucinated answers among the 1, 2, … n that a method doubts least, [examples].

    Answers with equal scores come in no order. So each counts as the mean of them all, which is the expected value
    over their orders.
    """
    _, place, count = np.unique(scores, return_inverse=True, return_counts=True)
    wrong = np.bincount(place, weights=hallucinated)
    each = np.repeat(wrong / count, count)  # by rising score
    return each.cumsum() / np.arange(1, len(scores) + 1)


def kept(coverage: float | np.ndarray, examples: int) -> np.ndarray:
    """How many answers a coverage keeps: at least that share of them."""
    # A product such as 0.07 * 100 can lie a little above the whole number that is meant.
    return np.ceil(np.asarray(coverage) * examples - 1e-9).astype(int)


def coverage(contest: Contest) -> pl.DataFrame:
    """One row per method and percent of answers kept: the share of them that is hallucinated."""
    counts = kept(COVERAGES, len(contest.hallucinated))
    return pl.concat(
        pl.DataFrame(
            {
                "method": method,
                "coverage": COVERAGES,
                "kept": counts,
                "risk": risks(scores, contest.hallucinated)[counts - 1],
            }
        )
        for method, scores in zip(contest.methods, contest.scores, strict=True)
    )


def compare_methods(contest: Contest) -> pl.DataFrame:
    """One row per method: how well it ranks, its gain over the plain probe, calibration, and risk by coverage."""
    behind = _gains(contest, PROBE, contest.methods)  # how far each is behind the probe
    curves = np.stack([risks(scores, contest.hallucinated) for scores in contest.scores])  # [methods, examples]
    examples = len(contest.hallucinated)
    apart = pl.col("n") * (pl.col("p") - pl.col("hallucinated_share")).abs()
    errors = reliability(contest).group_by("method").agg(calibration_error=apart.sum() / pl.col("n").sum())
    table = pl.DataFrame(
        {
            "method": contest.methods,
            "kind": [METHODS[method].kind for method in contest.methods],
            "n": [examples] * len(contest.methods),
            "hallucinated_share": [float(contest.hallucinated.mean())] * len(contest.methods),
            **areas(contest.scores, hallucinated=contest.hallucinated, clusters=contest.clusters, folds=contest.folds),
            "gain": -behind["gain"],
            "gain_low": -behind["gain_high"],
            "gain_high": -behind["gain_low"],
            "aurc": curves.mean(1),
            "right_at_50": 1 - curves[:, kept(0.5, examples) - 1],
            "right_at_80": 1 - curves[:, kept(0.8, examples) - 1],
        }
    )
    return table.with_columns(
        pl.when(pl.col("method") != PROBE).then(pl.col(name)).alias(name) for name in ("gain", "gain_low", "gain_high")
    ).join(errors, on="method", how="left", maintain_order="left")


def pathways(contest: Contest) -> pl.DataFrame:
    """One row per method that knows pathways and per rival without that knowledge: the gain, and whether it is one."""
    rivals = {name: method.rivals for name, method in METHODS.items() if method.rivals}
    found = pl.concat(
        pl.DataFrame({"method": name, "against": others, **_gains(contest, name, others)})
        for name, others in rivals.items()
    )
    return found.with_columns(helps=pl.Series(list(map(verdict, found["gain_low"], found["gain_high"]))))


def _gains(contest: Contest, method: str, rivals: Sequence[str]) -> dict[str, np.ndarray]:
    """How far a method is ahead of each rival, [rivals], with intervals of the paired differences."""
    return gains(
        contest.of(method),
        np.stack([contest.of(rival) for rival in rivals]),
        hallucinated=contest.hallucinated,
        clusters=contest.clusters,
        folds=contest.folds,
    )


def verdict(low: float, high: float) -> str:
    """By the interval of a gain: yes above zero, no below it."""
    return YES if low > 0 else NO if high < 0 else NEITHER


def overall(verdicts: list[str]) -> str:
    """Pathways help where every comparison says yes; one no is enough against them."""
    return YES if set(verdicts) == {YES} else NO if NO in verdicts else NEITHER


@dataclass(frozen=True)
class Described:
    """What the tables say about models and datasets: manifests of models, sources and layouts of datasets, by name."""

    models: Mapping[str, dict]
    sources: Mapping[str, str]
    layouts: Mapping[str, str]
    published: Mapping[str, Mapping[str, Mapping[str, float]]]  # AUC by hub repository, method and layout


def gather_detection(
    files: Mapping[Pair, str], transfers: Mapping[str, str], run: Described
) -> tuple[dict[str, pl.DataFrame], dict[str, object]]:
    """Every table of all pairs that were probed, and what their metadata say of models and of pairs left out.

    `files` has the scores of each pair, `transfers` the areas of each model between datasets.
    """
    missing = not_probed(files)
    probed = {pair: path for pair, path in files.items() if pair not in missing}
    contests = {pair: contest_of(read_frame(path), where=" on ".join(pair)) for pair, path in probed.items()}
    compared = {"detection": compare_methods, "reliability": reliability, "coverage": coverage, "pathways": pathways}
    tables = {
        name: pl.concat(
            described(make(own), model, run.models[model]["weights"], dataset, run.sources[dataset])
            for (model, dataset), own in contests.items()
        )
        for name, make in compared.items()
    }
    tables["detection"] = with_published(tables["detection"], run)
    tables["transfer"] = gather_transfer({model: transfers[model] for model, _ in probed}, tables["detection"], run)
    return tables, {"models": dict(run.models), NOT_PROBED: [[*pair, why] for pair, why in missing.items()]}


def with_published(detection: pl.DataFrame, run: Described) -> pl.DataFrame:
    """The table with the published AUC beside the run's, for the published models on the published questions."""
    of_model = {name: run.published.get(made["source"].get("hub", ""), {}) for name, made in run.models.items()}
    values = [
        None if source == "bundled" else of_model[model].get(method, {}).get(run.layouts[dataset])
        for model, dataset, source, method in detection.select("model", "dataset", "source", "method").iter_rows()
    ]
    return detection.with_columns(pl.Series("published", values, pl.Float64))


def gather_transfer(files: Mapping[str, str], detection: pl.DataFrame, run: Described) -> pl.DataFrame:
    """The areas between datasets of every model, and those at home, with what a reader must know about each."""
    first = ("model", "weights", "dataset", "source")
    elsewhere = pl.concat(
        read_frame(path)
        .with_columns(
            model=pl.lit(model),
            weights=pl.lit(run.models[model]["weights"]),
            source=pl.col("dataset").replace_strict(run.sources, return_dtype=pl.String),
        )
        .select(*first, pl.exclude(first))
        for model, path in files.items()
    )
    home = detection.with_columns(trained_on=pl.col("dataset"), left_out=pl.lit(0, pl.Int64)).select(elsewhere.columns)
    return pl.concat([home, elsewhere])


def mean_transfer(transfer: pl.DataFrame) -> pl.DataFrame:
    """One row per model and method: its mean AUC at home, on datasets it never saw, and how much is lost on the way.

    `elsewhere` is the mean over pairs of a dataset it was trained on and another one, `others` over datasets tested
    after training on all others, null where there is only one other. A model with one dataset, or with datasets that
    share too much to learn from one for another, has no row: there is nothing to carry over.
    """
    keys = ["model", "method"]
    joint, home = pl.col("trained_on") == OTHERS, pl.col("trained_on") == pl.col("dataset")
    means = transfer.group_by(keys, maintain_order=True).agg(
        home=pl.col("auc").filter(home).mean(),
        elsewhere=pl.col("auc").filter(~joint & ~home).mean(),
        others=pl.col("auc").filter(joint).mean(),
    )
    return means.drop_nulls("elsewhere").with_columns(drop=pl.col("home") - pl.col("elsewhere"))
