"""The estimates of one experiment for one model on one dataset, from the files that its passes left.

Token patching and answer-only input: what new passes do to the verdicts of each group. Their scores have the columns of
a delta table, and for patching also the donor's popularity; an example that a pass does not concern has nulls.

The knowledge boundary: are Question-Anchored answers more often right, surer and about more popular subjects? Over all
answers: the balance kept some of a class, so each analysed example weighs as many answers as it stands for. And at
equal clean logit of the probe that labels: a knockout that pushes every logit one way flips just those verdicts that
lie near the threshold on one side, which are more often right, without any second pathway.

Self-awareness: how well readers tell the groups, and whether clean states tell more than the clean logits alone. The
readers see clean states, or only what the probes of the rule say about them: their clean logits, with the sign, without
it, or both. `tell_groups` has what each of them says.

Saliency: does its distribution over examples have two modes? The dip test can only speak against one mode. So a dip is
also compared with those of samples that do have two clear modes: one that is smaller than nearly all of these speaks
against two.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache

import numpy as np
import polars as pl

from anchorscope.experiments.groups import RULES, Groups, read_groups
from anchorscope.experiments.means import LayerMeans, rows, rows_of_groups, to_table
from anchorscope.experiments.names import (
    ABSOLUTE,
    ACCURACY,
    AUC,
    DELTA_LOGIT,
    DELTA_P,
    DIP,
    ENOUGH,
    EVERYONE,
    FLIPS,
    GAIN,
    GROUP,
    LOGIT,
    LOGPROB,
    MEAN,
    ONE_MODE,
    OTHER_GROUP,
    OTHER_PROMPT,
    READERS,
    SHUFFLED,
    SHUFFLED_GROUP,
    SIGNED,
    STATES,
    SUBJECT,
    TWO_MODES,
    UNSURE,
)
from anchorscope.extract.axes import Headline
from anchorscope.files.frames import read_frame
from anchorscope.probe.quality import auc, delta_logit, delta_p, flips
from anchorscope.summarise.bootstrap import Resamples, resample
from anchorscope.summarise.curves import Estimate, resampled_auc
from anchorscope.summarise.dip import LARGEST_SIMULATED, SIMULATIONS, dip_test, dips
from anchorscope.summarise.grouping import POPULARITY, by_layer, thirds

SAMPLE = {"sample": pl.List(pl.Float32)}  # a column that only saliency has
FLOWS = ("exact", "random")
CLEAR = 4.0  # standard deviations between two clear modes; two examples in three are in one, one in the other
LABELS = {"all": None, "right": False, "hallucinated": True}  # strata by the answer
FEWEST = 20  # examples without which nothing is said of a distribution
Files = Mapping[str, str | list[str]]  # by name: delta, layers, and what the experiment measured
Change = Callable[[np.ndarray, np.ndarray], np.ndarray]  # of clean and changed logits
# By experiment: the conditions that new passes make, and what is measured of each.
EXPERIMENT_PASSES: dict[str, tuple[tuple[str, ...], dict[str, Change]]] = {
    "patching": (
        ("patch_question", "patch_random", "patch_right"),
        {FLIPS: lambda clean, changed: 100.0 * flips(clean, changed)},
    ),
    "answer_only": (("answer_only", "answer_after_other"), {DELTA_P: delta_p, DELTA_LOGIT: delta_logit}),
}


def pass_rows(experiment: str, scores: pl.DataFrame, groups: Groups, resamples: Resamples) -> Iterator[dict]:
    """What each condition that was run does to verdicts, by group and layer; of patching also for parts of examples.

    Patching: how often the verdict flips. Answer-only input: how far the probe's confidence in its clean verdict moves.
    """
    conditions, measures = EXPERIMENT_PASSES[experiment]
    of_patches = experiment == "patching"
    known = scores.with_columns(pl.col("^logit_.*$").cast(pl.Float64).fill_null(np.nan))
    for condition in conditions:
        unit = known.filter(intervention=condition).sort("repeat", "layer", "id")
        if unit.is_empty():
            continue
        own = unit.head(len(groups.examples))["id"]
        if not own.equals(groups.examples["id"]) or len(unit) != groups.by_rule["flip"].labelling.size:
            raise ValueError("The experiment's scores and the delta table hold different examples; delete one of them.")
        for rule, grouping in groups.by_rule.items():
            probe = RULES[rule].measures.name
            clean, changed = (by_layer(unit, f"logit_{state}_{probe}") for state in ("clean", "ko"))
            strata = _strata(unit, clean, groups) if of_patches else {"all": np.ones(len(own), bool)}
            for stratum, members in strata.items():
                some = replace(grouping, counted=np.isfinite(changed) & members)
                if not some.counted.any():
                    continue
                names = {"condition": condition, "stratum": stratum, "rule": rule}
                matched = of_patches and stratum == "all"
                for measure, change in measures.items():
                    values = change(clean, changed)
                    yield from rows_of_groups(values, some, resamples, matched=matched, measure=measure, **names)


def _strata(unit: pl.DataFrame, clean: np.ndarray, groups: Groups) -> dict[str, np.ndarray]:
    """Parts of the examples, each bool [repeats, layers, examples] or what broadcasts to it.

    | stratum | |
    |---|---|
    | right, hallucinated | by the answer |
    | published | the answer is right, and the probe that measures judges it right |
    | same_popularity | the donor is in the example's own third of popularity, where both are known |
    """
    wrong = groups.examples["hallucinated"].to_numpy()
    donor = unit.head(len(wrong))["donor_popularity"].cast(pl.Float64).fill_null(np.nan).to_numpy()
    own, other = thirds(groups.popularity, groups.popularity), thirds(donor, groups.popularity)
    return {
        "all": np.ones(len(wrong), bool),
        "right": ~wrong,
        "hallucinated": wrong,
        "published": ~wrong & (clean < 0),
        "same_popularity": (own == other) & (own >= 0),
    }


def read_known(groups: Groups, chosen: pl.DataFrame, unsure: pl.DataFrame) -> pl.DataFrame:
    """What is known of each analysed example besides its group: measures, and how many answers it stands for.

    From the chosen examples, and the answers to the question that allows "I don't know". NaN where it is not known.
    """
    every = groups.examples.join(chosen, on="id", how="left", maintain_order="left").join(
        unsure.select("id", unsure=100.0 * pl.col("refused").cast(pl.Float64)),
        on="id",
        how="left",
        maintain_order="left",
    )
    columns = {
        ACCURACY: 100.0 * (1 - pl.col("hallucinated").cast(pl.Float64)),
        UNSURE: pl.col("unsure"),
        SUBJECT: pl.when(pl.col("popularity") > 0).then(pl.col("popularity").cast(pl.Float64).log10()),
        LOGPROB: pl.col("logprobs").list.mean().cast(pl.Float64),  # the token that ended the answer included
    }
    return every.select("stands_for", **columns).fill_null(np.nan)


def boundary_rows(known: pl.DataFrame, groups: Groups, resamples: Resamples) -> Iterator[dict]:
    """Each measure by group and layer, over all answers and at equal clean logit; accuracy also by popularity."""
    third = thirds(groups.popularity, groups.popularity)
    for rule, grouping in groups.by_rule.items():
        for measure in (name for name in known.columns if name != "stands_for"):
            values = np.broadcast_to(known[measure].to_numpy(), grouping.counted.shape)
            strata = {"all": np.isfinite(values)}
            if measure == ACCURACY:
                strata |= {name: strata["all"] & (third == number) for number, name in enumerate(POPULARITY)}
            for stratum, counted in strata.items():
                if counted.any():
                    some = replace(grouping, counted=counted, stands_for=known["stands_for"].to_numpy())
                    names = {"measure": measure, "condition": EVERYONE, "stratum": stratum, "rule": rule}
                    yield from rows_of_groups(values, some, resamples, matched=stratum == "all", **names)


def awareness_rows(told: pl.DataFrame, resamples: Resamples) -> Iterator[dict]:
    """The AUC of each reader by layer, and the gain of states over each reader of clean logits."""
    for rule in RULES:
        layers = told.filter(rule=rule).sort("layer", "id").partition_by("layer", maintain_order=True)
        names = {"stratum": "all", "rule": rule, "anchor": None}
        compared = {reader: (reader, GROUP) for reader in READERS}
        compared |= {SHUFFLED: (SHUFFLED, SHUFFLED_GROUP), OTHER_PROMPT: (STATES, OTHER_GROUP)}
        curves = {condition: _auc(layers, *pair, resamples) for condition, pair in compared.items()}
        for condition, curve in curves.items():
            yield from rows(curve, **names, measure=AUC, condition=condition)
        for reader in (SIGNED, ABSOLUTE, LOGIT):
            states, other = curves[STATES], curves[reader]
            gain = LayerMeans(states.n, states.fewest, states.estimate - other.estimate)
            yield from rows(gain, **names, measure=GAIN, condition=reader)


def _auc(layers: list[pl.DataFrame], ranked: str, group: str, resamples: Resamples) -> LayerMeans:
    """How well the logits of a reader rank a group, in percent."""
    fewest, areas, drawn = [], [], []
    for table in layers:
        positive = table[group].to_numpy()
        fewest.append(min(positive.sum(), (~positive).sum()))
        if table[ranked].null_count() or fewest[-1] < ENOUGH:
            areas.append(np.nan)
            drawn.append(np.full(len(resamples.weights), np.nan))
            continue
        logits = table[ranked].cast(pl.Float64).to_numpy()[None]
        areas.append(100 * auc(logits, positive)[0])
        drawn.append(100 * resampled_auc(logits, positive, resamples.weights)[:, 0])
    estimate = Estimate(np.array(areas), np.stack(drawn, axis=1))
    return LayerMeans(np.full(len(layers), len(layers[0])), np.array(fewest), estimate)


def saliency_rows(values: pl.DataFrame, layer: int, seed: int) -> Iterator[dict]:
    """Dip and mean of each kind of flow at the reference layer, for all examples and by label.

    The rows of a mean also have the `sample` that it is of.
    """
    there = values.filter(layer=layer).sort("flow", "id")
    if there.is_empty():
        raise ValueError(
            f"Saliency was not measured at the reference layer, {layer}; delete its table to measure it again."
        )
    for flow in FLOWS:
        own = there.filter(flow=flow)
        for stratum, wrong in LABELS.items():
            some = own if wrong is None else own.filter(hallucinated=wrong)
            sample = some["value"].cast(pl.Float64).to_numpy()
            if len(sample) < FEWEST:
                continue
            names = {"condition": flow, "stratum": stratum, "layer": layer, "n": len(sample)}
            depth, chance = dip_test(sample, seed)
            found = {DIP: depth, ONE_MODE: 100 * chance, TWO_MODES: 100 * chance_of_two(depth, len(sample), seed)}
            for measure, value in found.items():
                yield {**names, "measure": measure, "value": value}
            error = 1.96 * sample.std() / np.sqrt(len(sample))
            mean = sample.mean()
            yield {**names, "measure": MEAN, "value": mean, "low": mean - error, "high": mean + error, "sample": sample}


def chance_of_two(depth: float, count: int, seed: int) -> float:
    """The probability of a dip so small where there are two clear modes."""
    size = min(count, LARGEST_SIMULATED)
    # A real dip does not fall with the size of the sample: a smaller sample's is only less certain.
    return float((1 + (two_mode_dips(size, seed) <= depth).sum()) / (1 + SIMULATIONS))


@cache
def two_mode_dips(size: int, seed: int) -> np.ndarray:
    """Dips of samples with two clear modes."""
    generator = np.random.default_rng([seed, size, 2])
    lower = generator.random((SIMULATIONS, size)) < 2 / 3
    return dips(np.where(lower, 0.0, CLEAR) + generator.normal(size=lower.shape))


def estimate_experiment(experiment: str, files: Files, headline: Headline, draws: int, seed: int) -> pl.DataFrame:
    """One row per measure, condition, stratum, rule, anchor and layer."""
    if experiment == "saliency":
        reference = read_frame(str(files["layers"])).filter("is_reference", **vars(headline))["layer"][0]
        return to_table(saliency_rows(read_frame(str(files["measured"])), reference, seed), **SAMPLE)
    groups = read_groups(read_frame(str(files["delta"])), headline)
    resamples = resample(groups.examples["cluster"].to_list(), len(groups.folds), draws, seed)
    if experiment == "boundary":
        chosen = pl.concat(read_frame(path, ["id", "stands_for", "logprobs"]) for path in files["chosen"])
        unsure = pl.concat(read_frame(path, ["id", "refused"]) for path in files["unsure"])
        return to_table(boundary_rows(read_known(groups, chosen, unsure), groups, resamples))
    measured = read_frame(str(files["measured"]))
    if experiment == "awareness":
        return to_table(awareness_rows(measured, resamples))
    return to_table(pass_rows(experiment, measured, groups, resamples))
