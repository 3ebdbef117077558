"""Planted truths come back, and nulls stay null, through the same code that measures real runs."""

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
import torch
from scipy.optimize import linprog
from sklearn.metrics import cohen_kappa_score
from sklearn.mixture import GaussianMixture

from anchorscope.extract.axes import Headline
from anchorscope.extract.store import PASSES
from anchorscope.probe import logistic
from anchorscope.probe.anchor_rules import RoleResult
from anchorscope.probe.anchors import reference_layer
from anchorscope.probe.delta import Examples, delta_table, examples_of, layers_table
from anchorscope.probe.scores import score
from anchorscope.summarise.bootstrap import group_means, interval, resample
from anchorscope.summarise.curves import Curve, curves, series_row
from anchorscope.summarise.dip import dip, dip_test, dips
from anchorscope.summarise.estimates import estimate, null_area
from anchorscope.summarise.mixture import two_normals
from anchorscope.summarise.one_mechanism import fit_shift, simulate_replicate
from anchorscope.summarise.two_kinds import BothPrompts, two_kinds
from reference import narrowed_dip, weighted_mean

SIGNAL = 1.3  # distance of a class from zero along the true direction, in units of the noise: 90 % accuracy
DRAWS = 500


HEADLINE = Headline("resid", "answer_last")


def keys(hallucinated: np.ndarray) -> list[dict]:
    return [
        {"id": f"{index:04d}", "right": not wrong, "subject": None, "popularity": index % 7}
        for index, wrong in enumerate(hallucinated)
    ]


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


def split(examples: Examples) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(getattr(examples, name)) for name in ("hallucinated", "folds", "halves")}


def tables(kind: str, count: int, seed: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The delta and layers tables of a simulated run."""
    states, hallucinated, _ = simulate(kind, count, seed)
    examples = examples_of(keys(hallucinated), folds=5, seed=0, where="simulation")
    scores = score(states, **split(examples))
    reference = reference_layer(scores, hallucinated)
    unit = [pl.lit("resid").alias("component"), pl.lit("answer_last").alias("position")]
    return (
        delta_table(scores, examples, reference).with_columns(unit),
        layers_table(scores, examples, reference).with_columns(unit),
    )


def measured(kind: str, count: int, seed: int) -> pl.DataFrame:
    """The summary of a simulated run."""
    return estimate(*tables(kind, count, seed), HEADLINE, draws=DRAWS, seed=0).summary


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
        assert row(summary, rule="flip", anchor="all", intervention="random_question")["delta_p"] == pytest.approx(
            0, abs=1e-4
        )
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
    drawn = resample(names, 4000, seed=1)
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
    after = np.where(anchored, -1.0, 1.0).astype(np.float32)
    columns = {
        "id": [f"{index:02d}" for index in range(count)],
        "cluster": [f"{index:02d}" for index in range(count)],
        "popularity": pl.Series([None] * count, dtype=pl.Int64),
        "hallucinated": np.arange(count) % 2 == 0,
        "p_clean": np.full(count, 0.75, np.float32),
        "p_ko": np.where(anchored, 0.25, 0.75).astype(np.float32),
        "layer": np.zeros(count, dtype=np.int16),
        "delta_p": np.where(anchored, -50.0, 0.0),
        "question_anchored_flip": anchored,
        "question_anchored_fixed": anchored,
    }
    for name in ("full", "first", "second"):
        columns |= {f"logit_clean_{name}": np.ones(count, np.float32), f"logit_ko_{name}": after}
    for rule in ("crossfit", "replicate"):
        for number in (1, 2):
            columns[f"question_anchored_{rule}_{number}"] = anchored
            columns[f"delta_p_{rule}_{number}"] = np.where(anchored, -50.0, 0.0)
    place = {"component": "resid", "position": "answer_last"}
    delta = pl.DataFrame(columns).with_columns(
        **{name: pl.lit(value) for name, value in place.items()}, intervention=pl.lit("exact_question")
    )
    layers = pl.DataFrame(
        {
            **{name: [value] * 2 for name, value in place.items()},
            "intervention": ["clean", "exact_question"],
            "layer": pl.Series([0, 0], dtype=pl.Int16),
            "auc": [0.5, 0.5],
            "better_than_chance": [False, False],
            "is_reference": [True, True],
        }
    )
    return delta, layers


@pytest.mark.parametrize("anchored", [0, 1, 2, 29, 30])
def test_empty_and_tiny_groups_are_marked_rows_and_never_nan(anchored):
    found = estimate(*table([index < anchored for index in range(30)]), HEADLINE, draws=DRAWS, seed=0)
    flip = row(found.summary, "flip", "question")
    assert flip["n"] == anchored
    assert flip["share"] == pytest.approx(anchored / 30)
    assert flip["delta_p"] == (None if anchored == 0 else -50.0)
    assert (flip["low"] is None) is (anchored < 2)
    assert flip["better_than_chance"] is False
    assert row(found.summary, "flip", "all")["n"] == 30
    for frame in (found.summary, found.series, found.two_kinds, found.strata):
        for name, kind in frame.schema.items():
            assert not (kind.is_float() and frame[name].is_nan().any()), name
            assert not (kind.is_float() and frame[name].is_infinite().any()), name


def test_what_a_curve_comes_to():
    """Area, deepest layer and what is left of the gap under another rule, each against its definition."""
    generator = np.random.default_rng(0)
    anchored = np.broadcast_to(np.arange(200) < 80, (4, 200))
    depth = np.array([0.0, -20.0, -40.0, -10.0])
    delta = depth[:, None] * anchored + generator.normal(size=(4, 200))
    weights = resample([str(index) for index in range(200)], 1000, seed=0)
    flip, other = (curves([RoleResult(anchored, part)], weights) for part in (delta, delta / 4))
    found = series_row(other["gap"], flip["gap"])
    assert found["area"] == pytest.approx(np.mean(depth) / 4, abs=0.3)
    assert found["area_low"] < found["area"] < found["area_high"]
    assert (found["deepest_layer"], found["deepest_layer_low"], found["deepest_layer_high"]) == (2, 2, 2)
    assert found["deepest"] == pytest.approx(-10, abs=0.3)
    assert found["of_flip"] == pytest.approx(0.25, abs=0.01)
    assert found["of_flip_low"] <= 0.25 <= found["of_flip_high"]


def test_strata_are_the_same_estimates_on_parts_of_the_examples():
    delta, layers = tables("two pathways", 400, 0)
    found = estimate(delta, layers, HEADLINE, draws=DRAWS, seed=0)
    assert set(found.strata["stratum"]) == {"right", "hallucinated", "unpopular", "middling", "popular"}
    for stratum, part in (
        ("right", ~pl.col("hallucinated")),
        ("hallucinated", pl.col("hallucinated")),
        ("popular", pl.col("popularity") > 4),
    ):
        alone = estimate(delta.filter(part), layers, HEADLINE, draws=DRAWS, seed=0, threads=3).summary
        for anchor in ("question", "answer", "gap"):
            inside = row(found.strata.filter(stratum=stratum), "replicate", anchor)
            expected = row(alone, "replicate", anchor)
            assert (inside["n"], inside["delta_p"]) == (expected["n"], pytest.approx(expected["delta_p"]))
            assert inside["low"] == pytest.approx(expected["low"], abs=4)


def test_popularity_is_left_out_where_it_is_unknown():
    delta, layers = tables("two pathways", 200, 0)
    unknown = delta.with_columns(popularity=pl.lit(None, dtype=pl.Int64))
    strata = estimate(unknown, layers, HEADLINE, draws=DRAWS, seed=0).strata
    assert set(strata["stratum"]) == {"right", "hallucinated"}


def test_the_band_of_one_mechanism_holds_what_one_mechanism_shows_and_not_two_pathways():
    """Under N2 the published grouping shows what the band says; reversed evidence is far from it."""
    one = row(measured("N2", 800, 1), "flip", "gap")
    assert one["null_low"] <= one["delta_p"] <= one["null_high"]
    assert one["null_high"] < -20, "one mechanism alone shows a deep gap"
    two = row(measured("two pathways", 800, 1), "flip", "answer")
    assert not two["null_low"] <= two["delta_p"] <= two["null_high"]


@pytest.mark.parametrize(("kind", "inside"), [("N1", True), ("N2", True), ("two pathways", False)])
def test_the_band_under_replicate_tells_two_pathways_from_one_mechanism(kind, inside):
    summary = measured(kind, 800, 1)
    for anchor in ("question", "answer", "gap"):
        found = row(summary, "replicate", anchor)
        assert (found["null_low"] <= found["delta_p"] <= found["null_high"]) == inside, anchor


def test_a_series_has_the_area_that_one_mechanism_would_give():
    delta, layers = tables("two pathways", 400, 0)
    series = estimate(delta, layers, HEADLINE, draws=DRAWS, seed=0).series
    (gap,) = series.filter(intervention="exact_question", rule="replicate", anchor="gap").to_dicts()
    one = row(measured("two pathways", 400, 0), "replicate", "gap")
    assert gap["area_null"] == pytest.approx(one["null"]), "of one layer"
    assert (gap["area_null_low"], gap["area_null_high"]) == pytest.approx((one["null_low"], one["null_high"]))
    assert gap["area_high"] < gap["area_null_low"]
    assert series.filter(intervention="random_question")["area_null"].null_count() == series.height / 2


def test_an_area_that_one_mechanism_hardly_ever_has_is_not_given():
    curve = Curve(
        n=np.array([30.0, 30.0]),
        fewest=np.array([30.0, 30.0]),
        mean=np.array([30.0, 30.0]),
        resampled=np.zeros((5, 2)),
        share=np.array([0.5, 0.5]),
        resampled_share=np.array([0.5, 0.5]),
    )
    means = np.full((10, 2), np.nan)
    means[:5] = -3.0
    assert null_area(curve, means) == {}
    means[5] = -3.0
    assert null_area(curve, means) == {"area_null": -3.0, "area_null_low": -3.0, "area_null_high": -3.0}


def sigmoid(logit: float) -> float:
    return 1 / (1 + np.exp(-logit))


def test_one_mechanism_under_replicate_is_what_a_plain_loop_gives():
    """Two prompts, three layers: each prompt labels at layer 1 by its own shifts, and the other one measures."""
    generator = np.random.default_rng(7)
    clean = generator.normal(size=(2, 3, 40))
    changed = 0.2 * clean - 0.5 + 0.7 * generator.normal(size=(2, 3, 40))
    found = simulate_replicate(clean, changed, reference=1, draws=5, seed=3)
    noise = np.random.default_rng(3).standard_normal((2, 5, 40))

    def moved(prompt: int, layer: int, draw: int, example: int) -> float:
        slope, level = np.polyfit(clean[prompt, layer], changed[prompt, layer], 1)
        spread = np.std(changed[prompt, layer] - level - slope * clean[prompt, layer])
        return level + slope * clean[prompt, layer, example] + spread * noise[prompt, draw, example]

    for draw in range(5):
        for layer in range(3):
            means = {True: [], False: []}
            for labels, measures in ((0, 1), (1, 0)):
                groups = {True: [], False: []}
                for example in range(40):
                    flipped = (clean[labels, 1, example] >= 0) != (
                        moved(prompt=labels, layer=1, draw=draw, example=example) >= 0
                    )
                    before = clean[measures, layer, example]
                    after = moved(prompt=measures, layer=layer, draw=draw, example=example)
                    side = 1 if before >= 0 else -1
                    groups[flipped].append(100 * (sigmoid(side * after) - sigmoid(side * before)))
                for flipped, values in groups.items():
                    means[flipped].append(np.mean(values))
            question, answer = np.mean(means[True]), np.mean(means[False])
            assert found["question"][draw, layer] == pytest.approx(question)
            assert found["answer"][draw, layer] == pytest.approx(answer)
            assert found["gap"][draw, layer] == pytest.approx(question - answer)


def gap_of(clean: np.ndarray, changed: np.ndarray) -> float:
    """Q minus A under `replicate`, from logits [2 prompts, 1 layer, examples]."""
    flipped = (clean >= 0) != (changed >= 0)
    side = np.where(clean >= 0, 1, -1)
    delta = 100 * (sigmoid(side * changed) - sigmoid(side * clean))
    gaps = [delta[1 - one, 0][flipped[one, 0]].mean() - delta[1 - one, 0][~flipped[one, 0]].mean() for one in (0, 1)]
    return float(np.mean(gaps))


def test_a_knockout_that_pushes_every_example_to_one_verdict_makes_a_gap_that_one_mechanism_explains():
    """The verdict is a property of the example, so `replicate` finds a gap; its band holds it."""
    generator = np.random.default_rng(0)
    verdict = np.where(np.arange(600) % 2, 2.0, -2.0)
    clean = verdict + generator.normal(scale=0.3, size=(2, 1, 600))
    changed = 1.5 + generator.normal(scale=0.5, size=(2, 1, 600))
    band = simulate_replicate(clean, changed, reference=0, draws=200, seed=0)
    low, high = np.quantile(band["gap"], [0.025, 0.975])
    assert gap_of(clean, changed) < -50
    assert low <= gap_of(clean, changed) <= high


def test_a_graded_shift_that_belongs_to_the_example_is_beyond_one_mechanism_without_two_kinds():
    """Why a gap beyond the band is not yet two pathways: the shifts have one hump."""
    generator = np.random.default_rng(0)
    clean = np.where(np.arange(800) % 2, 2.0, -2.0) + generator.normal(size=(2, 1, 800))
    graded = 2 * generator.normal(size=800)
    changed = 0.8 * clean + graded + 0.3 * generator.normal(size=(2, 1, 800))
    band = simulate_replicate(clean, changed, reference=0, draws=200, seed=0)
    assert gap_of(clean, changed) < np.quantile(band["gap"], 0.025) - 20


def test_the_deepest_table_holds_every_example_where_question_anchored_is_lowest():
    delta, layers = tables("two pathways", 200, 0)
    deeper = delta.with_columns(layer=pl.lit(1, pl.Int16), delta_p=pl.col("delta_p") * 1.1)
    both = pl.concat([delta, deeper])
    found = estimate(
        both,
        pl.concat([layers, layers.with_columns(layer=pl.lit(1, pl.Int16), is_reference=False)]),
        HEADLINE,
        draws=DRAWS,
        seed=0,
    ).deepest
    assert set(found["layer"]) == {1}
    assert sorted(found.filter(intervention="exact_question")["id"]) == sorted(set(delta["id"]))
    for name in ("p_clean", "p_ko", "delta_p"):
        expected = deeper.filter(intervention="exact_question").sort("id")[name]
        assert found.filter(intervention="exact_question").sort("id")[name].to_list() == expected.to_list()
    expected = deeper.filter(intervention="exact_question").sort("id")["question_anchored_flip"]
    assert found.filter(intervention="exact_question").sort("id")["question_anchored"].to_list() == expected.to_list()


def test_the_fitted_shift_is_that_of_least_squares():
    generator = np.random.default_rng(4)
    clean = generator.normal(size=300)
    changed = 0.4 * clean - 1.1 + 0.3 * generator.normal(size=300)
    slope, level = np.polyfit(clean, changed - clean, 1)
    found = fit_shift(clean, changed)
    assert (found.slope, found.level) == pytest.approx((slope, level))
    assert found.spread == pytest.approx(np.std(changed - clean - level - slope * clean))
    assert fit_shift(np.zeros(5), np.arange(5.0)).slope == 0


def test_kappa_and_correlation_agree_with_their_definitions():
    generator = np.random.default_rng(5)
    labels = np.stack([generator.random(300) < 0.3] * 2)
    labels[1] ^= generator.random(300) < 0.2
    delta = generator.normal(size=(2, 300))
    delta[1] += delta[0]
    clean, changed = generator.normal(size=(2, 2, 300))
    weights = resample([str(index) for index in range(300)], 500, seed=0)
    found = two_kinds(BothPrompts(labels, delta_p=delta, clean=clean, changed=changed), weights, seed=0)
    assert found["kappa"] == pytest.approx(cohen_kappa_score(*labels))
    assert found["correlation"] == pytest.approx(np.corrcoef(delta)[0, 1])
    assert found["kappa_low"] < found["kappa"] < found["kappa_high"]
    assert found["correlation_high"] - found["correlation_low"] == pytest.approx(4 * 0.5 / np.sqrt(300), rel=0.4)


def test_what_cannot_be_said_is_left_empty():
    weights = resample([str(index) for index in range(40)], 100, seed=0)
    same = np.ones((2, 40))
    found = two_kinds(BothPrompts(same > 0, delta_p=same, clean=same, changed=same), weights, seed=0)
    assert {name for name, value in found.items() if value is not None} == {"n"}


@pytest.mark.parametrize("kind", ["normal", "two humps", "uniform", "ties"])
def test_the_dip_is_the_least_distance_from_a_distribution_with_one_mode(kind):
    generator = np.random.default_rng(6)
    for size in (4, 9, 17, 26):
        sample = {
            "normal": generator.normal(size=size),
            "two humps": generator.normal(size=size) + 6 * (np.arange(size) % 2),
            "uniform": generator.random(size),
            "ties": np.round(generator.normal(size=size) * 1.5),
        }[kind]
        assert dip(sample) == pytest.approx(plain_dip(sample), abs=1e-7)


def test_the_means_of_all_groups_at_once_are_those_of_each():
    generator = np.random.default_rng(10)
    weights = resample([str(index // 2) for index in range(12)], 40, seed=0)[:, :5]  # as of a stratum: some draw none
    inside, values = generator.random((3, 5)) < 0.3, generator.normal(size=(3, 5))
    groups = [inside, ~inside, np.ones_like(inside)]
    means, shares = group_means(weights, inside, values)
    np.testing.assert_allclose(means, [weighted_mean(weights, values, mask) for mask in groups], rtol=1e-12)
    of_all = [weighted_mean(weights, mask.astype(float), groups[2]) for mask in groups]
    np.testing.assert_allclose(shares, of_all, rtol=1e-12)
    assert np.isnan(means).any()
    assert np.isnan(shares).any()


@pytest.mark.parametrize("kind", ["normal", "two humps", "uniform", "ties", "one value"])
def test_the_dips_of_many_samples_at_once_are_those_of_each(kind):
    generator = np.random.default_rng(9)
    for size in (1, 2, 3, 5, 40, 300):
        samples = {
            "normal": generator.normal(size=(20, size)),
            "two humps": generator.normal(size=(20, size)) + 6 * (np.arange(size) % 2),
            "uniform": generator.random((20, size)),
            "ties": np.round(generator.normal(size=(20, size)) * 1.5),
            "one value": np.where(generator.random((20, size)) < 0.5, 0.0, generator.normal(size=(20, size))),
        }[kind]
        assert dips(samples).tolist() == [narrowed_dip(sample) for sample in samples]


def plain_dip(sample: np.ndarray) -> float:
    """The definition as linear programs, one for each place that the mode can have.

    Unknown are the distribution function's values at the sample's points, from both sides at the mode, where it may
    jump; it is convex before the mode and concave after it, and never farther than `distance` from the sample's own.
    """
    points, ranks = np.unique(sample, return_inverse=True)
    count, size = len(points), len(sample)
    after = np.bincount(ranks).cumsum() / size
    before = np.concatenate([[0.0], after[:-1]])
    least = np.inf
    for mode in range(count):
        left, right = list(range(mode + 1)), list(range(mode + 1, count + 1))  # unknowns; the mode has one in each
        where = {**{i: i for i in left}, **{i: i - 1 for i in right}}
        rows, bounds = [], []

        def constrain(terms: dict[int, float], bound: float, distance: float = 0.0, rows=rows, bounds=bounds) -> None:
            line = np.zeros(count + 2)
            for index, factor in terms.items():
                line[index] += factor
            line[-1] = distance
            rows.append(line)
            bounds.append(bound)

        for unknown, place in where.items():
            targets = {before[place], after[place]}
            if place == mode:
                targets = {before[place]} if unknown == mode else {after[place]}
            for target in targets:
                constrain({unknown: 1.0}, target, -1.0)
                constrain({unknown: -1.0}, -target, -1.0)
        for side, sign in ((left, 1), (right, -1)):
            for one, two in pairwise(side):
                constrain({one: 1.0, two: -1.0}, 0.0)
            for one, two, three in zip(side, side[1:], side[2:], strict=False):
                first, second = (1 / (points[where[b]] - points[where[a]]) for a, b in ((one, two), (two, three)))
                constrain({one: -sign * first, two: sign * (first + second), three: -sign * second}, 0.0)
        constrain({mode: 1.0, mode + 1: -1.0}, 0.0)
        goal = np.eye(count + 2)[-1]
        found = linprog(goal, A_ub=np.array(rows), b_ub=bounds, bounds=[(0, 1)] * (count + 2))
        least = min(least, found.fun)
    return max(least, 1 / (2 * size))


def test_the_dip_test_sees_two_humps_and_keeps_its_level():
    generator = np.random.default_rng(7)
    apart = generator.normal(size=500) + 5 * (np.arange(500) % 2)
    assert dip_test(apart, seed=0)[1] < 0.01
    rejected = np.mean([dip_test(generator.random(300), seed=0)[1] < 0.05 for _ in range(200)])
    assert 0.01 <= rejected <= 0.09, "uniform samples are the hardest with one mode"
    rejected = np.mean([dip_test(generator.random(2000), seed=0)[1] < 0.05 for _ in range(100)])
    assert rejected <= 0.09, "larger samples are judged by smaller simulated ones"


def test_two_normals_are_those_of_scikit_learn():
    generator = np.random.default_rng(8)
    sample = np.where(generator.random(600) < 0.3, generator.normal(-4, 1.0, 600), generator.normal(1, 1.5, 600))
    found = two_normals(sample)
    models = [GaussianMixture(count, tol=1e-9, max_iter=5000, n_init=3, random_state=0) for count in (1, 2)]
    one, two = (model.fit(sample[:, None]) for model in models)
    order = np.argsort(two.means_[:, 0])
    np.testing.assert_allclose(found.means, two.means_[order, 0], atol=0.02)
    np.testing.assert_allclose(found.share, two.weights_[order][0], atol=0.005)
    np.testing.assert_allclose(found.spreads, np.sqrt(two.covariances_[order, 0, 0]), atol=0.02)
    assert found.bic_gain == pytest.approx(one.bic(sample[:, None]) - two.bic(sample[:, None]), abs=0.5)
    assert two_normals(generator.normal(size=600)).bic_gain < 0


def test_a_class_too_small_to_probe_says_how_small():
    labels = np.array([True] * 50 + [False] * 7)
    with pytest.raises(ValueError, match=r"m on d: 7 right and 50 hallucinated .* 20 of each are needed"):
        examples_of(keys(labels), folds=5, seed=0, where="m on d")


def test_labels_that_are_all_equal_say_so():
    with pytest.raises(ValueError, match=r"m on d: 0 right and 60 hallucinated .* 20 of each are needed"):
        examples_of(keys(np.ones(60, bool)), folds=5, seed=0, where="m on d")


def test_a_fold_without_a_class_says_which():
    some = keys(np.arange(60) % 2 == 0)
    for key in some:
        key["subject"] = "one" if key["right"] else key["id"]
    with pytest.raises(ValueError, match=r"m on d: fold \d or a half of its training data has one class only"):
        examples_of(some, folds=5, seed=0, where="m on d")


def test_probes_that_read_nothing_are_marked_and_so_are_folds_that_did_not_arrive(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    labels = np.arange(120) % 2 == 0
    states = torch.randn(2, 120, 20, generator=generator)
    states[1, :, 0] += torch.from_numpy(labels) * 3.0
    examples = examples_of(keys(labels), folds=5, seed=0, where="m on d")

    def marks() -> pl.DataFrame:
        scores = score(dict.fromkeys(PASSES, states), **split(examples))
        return layers_table(scores, examples, 1).filter(intervention="clean").sort("layer")

    assert marks()["better_than_chance"].to_list() == [False, True]
    assert marks()["unconverged_folds"].to_list() == [[], []]
    monkeypatch.setattr(logistic, "NEWTON_STEPS", 1)
    assert marks()["unconverged_folds"].to_list() == [[0, 1, 2, 3, 4]] * 2
