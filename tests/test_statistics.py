"""Planted truths come back, and nulls stay null, through the same code that measures real runs."""

import numpy as np
import polars as pl
import pytest
import torch

from anchorscope.anchors import reference_layer
from anchorscope.crossfit import score
from anchorscope.delta import delta_rows, examples_of, layer_rows
from anchorscope.summary import bootstrap_weights, interval, summarise

SIGNAL = 1.3  # distance of a class from zero along the true direction, in units of the noise: 90 % accuracy
DRAWS = 500


def keys(hallucinated: np.ndarray) -> list[dict]:
    return [{"id": f"{index:04d}", "right": not wrong, "subject": None} for index, wrong in enumerate(hallucinated)]


def simulate(kind: str, count: int, seed: int) -> tuple[dict, np.ndarray, np.ndarray]:
    """States of one layer under both prompts; labels; and who truly depends on the question.

    The first dimension is the true direction; the others are noise, drawn anew for each prompt.
    """
    generator = np.random.default_rng(seed)
    width = 8 if kind == "two pathways" else 256
    side = np.where(np.arange(count) % 2 == 0, 1, -1)  # the first of every two examples is hallucinated
    depends = generator.random(count) < 0.4
    evidence = SIGNAL * side + generator.normal(size=count)
    states = {}
    for prompt in ("first", "second"):
        clean = generator.normal(size=(count, width))
        clean[:, 0] = evidence if kind != "N2" else SIGNAL * side + generator.normal(size=count)
        cut = clean.copy()
        if kind == "two pathways":  # 40 % turn their evidence around, the others keep it
            cut[depends, 0] *= -1
        elif kind == "N1":  # noise that has nothing to do with truth
            cut[:, 1:] += generator.normal(scale=4.0, size=(count, width - 1))
        elif kind == "N2":  # one mechanism, its strength drawn anew for each prompt
            cut[:, 0] += generator.normal(0.0, 2.5, size=count)
        states[prompt, "clean"] = torch.tensor(clean)[None].float()
        states[prompt, "exact_question"] = torch.tensor(cut)[None].float()
    states["first", "random_question"] = states["first", "clean"].clone()
    return states, side > 0, depends


def measured(kind: str, count: int, seed: int) -> pl.DataFrame:
    """The summary of a simulated run."""
    states, hallucinated, _ = simulate(kind, count, seed)
    examples = examples_of(keys(hallucinated), 5, 0, "simulation")
    scores = score(
        states, *(torch.from_numpy(part) for part in (examples.hallucinated, examples.folds, examples.halves))
    )
    reference = reference_layer(scores, hallucinated)
    unit = [pl.lit("resid").alias("component"), pl.lit("answer_last").alias("position")]
    delta = delta_rows(scores, examples, reference).with_columns(unit)
    layers = layer_rows(scores, examples, reference).with_columns(unit)
    return summarise(delta, layers, DRAWS, seed=0)


def row(summary: pl.DataFrame, rule: str, anchor: str, intervention: str = "exact_question") -> dict:
    return summary.row(
        by_predicate=(pl.col("rule") == rule)
        & (pl.col("anchor") == anchor)
        & (pl.col("intervention") == intervention)
        & (pl.col("layer") == 0),
        named=True,
    )


def covers(estimate: dict, truth: float) -> bool:
    return estimate["low"] <= truth <= estimate["high"]


def test_planted_pathways_come_back():
    """Against the ideal probe, whose logit is 2 * SIGNAL * evidence, and against the planted share.

    Ten draws; a 95 % interval may miss once or twice, not more.
    """
    evidence = SIGNAL + np.random.default_rng(5).normal(size=1_000_000)
    confidence = 1 / (1 + np.exp(-2 * SIGNAL * np.abs(evidence)))
    truth = 100 * np.mean(1 - 2 * confidence)  # an example whose evidence turns around
    covered = {"flip": 0, "replicate": 0}
    for seed in range(10):
        summary = measured("two pathways", 1000, seed)
        planted = int(simulate("two pathways", 1000, seed)[2].sum())
        for rule in covered:
            covered[rule] += covers(row(summary, rule, "question"), truth)
            assert abs(row(summary, rule, "question")["n"] - planted) < 1.96 * np.sqrt(1000 * 0.4 * 0.6)
            assert abs(row(summary, rule, "answer")["delta_p"]) < 1
        assert row(summary, "flip", "all", "random_question")["delta_p"] == pytest.approx(0, abs=1e-4)
    assert min(covered.values()) >= 8, covered


@pytest.mark.parametrize(("null", "honest"), [("N1", ["crossfit", "replicate"]), ("N2", ["replicate"])])
def test_a_null_shows_a_gap_under_flip_but_not_under_the_honest_rules(null, honest):
    """Eight draws of 800 examples in 256 dimensions; a 95 % interval may miss zero once or twice, not more."""
    covered = dict.fromkeys(["flip", *honest], 0)
    for seed in range(8):
        summary = measured(null, 800, seed)
        for rule in covered:
            covered[rule] += covers(row(summary, rule, "gap"), 0)
    assert covered.pop("flip") == 0
    assert min(covered.values()) >= 6, covered


def test_crossfit_alone_does_not_see_through_one_mechanism():
    """Why `replicate` exists: under N2 the forward pass's own noise selects, and crossfit keeps the gap."""
    assert row(measured("N2", 800, 0), "crossfit", "gap")["high"] < 0


def test_the_interval_is_a_bootstrap_over_clusters():
    """Against resampling by hand: draw subjects with replacement, average, take quantiles."""
    generator = np.random.default_rng(3)
    subjects = generator.integers(0, 25, 120)
    effect = generator.normal(size=25)[subjects] + 0.2 * generator.normal(size=120)
    names = [f"s{number:02d}" for number in subjects]
    weights = bootstrap_weights(sorted(set(names)), 4000, seed=1)
    drawn = np.stack([weights[name] for name in names], axis=1)
    low, high = interval((drawn @ effect / drawn.sum(1))[:, None])
    members = [np.flatnonzero(subjects == number) for number in sorted(set(subjects))]
    means = []
    for _ in range(4000):
        chosen = generator.integers(0, len(members), len(members))
        means.append(np.concatenate([effect[members[index]] for index in chosen]).mean())
    np.testing.assert_allclose([low[0], high[0]], np.quantile(means, [0.025, 0.975]), atol=0.04)
    naive = 1.96 * effect.std() / np.sqrt(120)
    assert high[0] - low[0] > 2 * 1.5 * naive, "clusters must widen the interval"


def test_the_interval_is_numpys_quantile_and_leaves_out_empty_draws():
    values = np.random.default_rng(0).normal(size=(501, 3))
    values[::7, 1] = np.nan
    low, high = interval(values)
    np.testing.assert_allclose(low, np.nanquantile(values, 0.025, axis=0))
    np.testing.assert_allclose(high, np.nanquantile(values, 0.975, axis=0))


def table(anchored: list[bool]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """A delta table of one layer in which the given examples flip by -50 and the others stay."""
    count = len(anchored)
    columns = {
        "id": [f"{index:02d}" for index in range(count)],
        "cluster": [f"{index:02d}" for index in range(count)],
        "layer": np.zeros(count, dtype=np.int16),
        "delta_p": np.where(anchored, -50.0, 0.0),
        "question_anchored_flip": anchored,
        "question_anchored_fixed": anchored,
    }
    for rule in ("crossfit", "replicate"):
        for number in (1, 2):
            columns[f"question_anchored_{rule}_{number}"] = anchored
            columns[f"delta_p_{rule}_{number}"] = np.where(anchored, -50.0, 0.0)
    place = {"component": "resid", "position": "answer_last", "intervention": "exact_question"}
    delta = pl.DataFrame(columns).with_columns(**{name: pl.lit(value) for name, value in place.items()})
    layers = pl.DataFrame({**place, "layer": [0], "auc": [0.5]}, schema_overrides={"layer": pl.Int16})
    clean = layers.with_columns(intervention=pl.lit("clean"))
    return delta, pl.concat([layers, clean])


@pytest.mark.parametrize("anchored", [0, 1, 2, 30])
def test_empty_and_tiny_groups_are_marked_rows_and_never_nan(anchored):
    delta, layers = table([index < anchored for index in range(30)])
    summary = summarise(delta, layers, DRAWS, seed=0)
    found = row(summary, "flip", "question")
    assert found["n"] == anchored
    assert found["delta_p"] == (None if anchored == 0 else -50.0)
    assert (found["low"] is None) is (anchored < 2)
    assert not any(summary[name].is_nan().any() for name in ("delta_p", "low", "high"))
    assert row(summary, "flip", "all")["n"] == 30


def test_a_class_too_small_to_probe_says_how_small():
    labels = np.array([True] * 50 + [False] * 7)
    with pytest.raises(ValueError, match=r"m on d: 7 right and 50 hallucinated .* 20 of each are needed"):
        examples_of(keys(labels), 5, 0, "m on d")
