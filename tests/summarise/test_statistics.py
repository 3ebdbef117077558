"""Planted truths come back, and nulls stay null, through the same code that measures real runs."""

import re
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise, product

import numpy as np
import polars as pl
import pytest
import torch
from scipy.optimize import linprog
from sklearn.metrics import cohen_kappa_score, roc_auc_score

from anchorscope.extract.axes import PASSES, Headline
from anchorscope.probe import logistic
from anchorscope.probe.anchor_rules import ROLES
from anchorscope.probe.delta import Measured, delta_table, layers_table, with_forms
from anchorscope.probe.examples import Examples, enough, examples_of
from anchorscope.probe.scores import cross_fit_scores, distances
from anchorscope.summarise import pair_tables
from anchorscope.summarise.bootstrap import Resamples, group_means, group_sums, interval, resample
from anchorscope.summarise.curves import (
    Curve,
    Uncertain,
    curves,
    curves_labelled_at,
    reference_curves,
    reference_layers,
    resampled_auc,
    series_row,
)
from anchorscope.summarise.dip import dip, dip_test, dips
from anchorscope.summarise.grouping import RoleResult, group, read_places, without_push
from anchorscope.summarise.one_mechanism import agreement, fit_shift, shape
from anchorscope.summarise.one_mechanism import simulate as simulate_null
from anchorscope.summarise.pair_tables import null_area, summary_tables
from anchorscope.summarise.weigh_kinds import weigh_kinds
from planted_logits import TRUTHS, gap_without, planted_logits
from reference import narrowed_dip, weighted_mean
from rounding import assert_same, of_sums

SIGNAL = 1.3  # distance of a class from zero along the true direction, in units of the noise: 90 % accuracy
BOOTSTRAP_DRAWS = 500


HEADLINE = Headline("resid", "answer_last")


def sigmoid(logit):
    return 1 / (1 + np.exp(-logit))


def role_result(anchored: np.ndarray, delta: np.ndarray) -> RoleResult:
    """Of one repeat, from arrays [layers, examples]."""
    everyone = np.ones((1, *delta.shape), dtype=bool)
    return RoleResult(
        anchored[None], delta[None], delta_logit=delta[None], judged_right=everyone, counted=everyone, share_learnt=0.8
    )


def keys(hallucinated: np.ndarray) -> list[dict]:
    return [
        {"id": f"{index:04d}", "right": not wrong, "subject": None, "popularity": index % 7}
        | {"question_form": "who", "answer_form": "other", "answer_in_question": index % 5 == 0}
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


def measure(states: dict, examples: Examples) -> Measured:
    """What the probes say about states, repeat by repeat."""
    hallucinated = torch.from_numpy(examples.hallucinated)
    splits = [{name: torch.from_numpy(part) for name, part in vars(split).items()} for split in examples.splits]
    first = {intervention: part for (prompt, intervention), part in states.items() if prompt == "first"}
    scores = [cross_fit_scores(states, hallucinated=hallucinated, **split) for split in splits]
    return Measured(scores, distances(first, splits[0]["folds"]))


def tables(kind: str, count: int, seed: int, repeats: int = 1, layers: int = 1) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The delta and layers tables of a simulated run, each layer drawn anew."""
    by_layer, (hallucinated, *_), _ = zip(
        *(simulate(kind, count, seed + layer) for layer in range(layers)), strict=True
    )
    states = {key: torch.cat([of_layer[key] for of_layer in by_layer]) for key in by_layer[0]}
    examples = examples_of(keys(hallucinated), folds=5, repeats=repeats, seed=0, where="simulation")
    found = measure(states, examples)
    unit = [pl.lit("resid").alias("component"), pl.lit("answer_last").alias("position")]
    delta = with_forms(delta_table(found, examples), keys(hallucinated))
    return delta.with_columns(unit), layers_table(found, examples).with_columns(unit)


def measured(kind: str, count: int, seed: int) -> pl.DataFrame:
    """The summary of a simulated run."""
    return summary_tables(*tables(kind, count, seed), HEADLINE, bootstrap_draws=BOOTSTRAP_DRAWS, seed=0)["summary"]


def row(
    summary: pl.DataFrame, rule: str, anchor: str, intervention: str = "exact_question", logits: str = "measured"
) -> dict:
    """At the first layer, with labels at the layer plotted; a table of strata has no other kinds."""
    wanted = {"rule": rule, "anchor": anchor, "intervention": intervention, "layer": 0}
    if "labels" in summary.columns:
        wanted |= {"labels": "plotted", "logits": logits}
    (found,) = summary.filter(**wanted).to_dicts()
    return found


def covers(row: dict, truth: float) -> bool:
    return row["low"] <= truth <= row["high"]


@pytest.mark.slow
def test_planted_pathways_come_back():
    """Against the ideal probe, whose logit is 2 * SIGNAL * evidence, and against the planted share.

    Ten draws; a 95 % interval may miss once or twice, not more.
    """
    evidence = SIGNAL + np.random.default_rng(5).normal(size=1_000_000)
    confidence = 1 / (1 + np.exp(-2 * SIGNAL * np.abs(evidence)))
    truth = 100 * np.mean(1 - 2 * confidence)  # an example whose evidence turns around
    covered = {"flip": 0, "honest": 0}
    for seed in range(10):
        summary = measured("two pathways", 1000, seed)
        planted = int(simulate("two pathways", 1000, seed)[2].sum())
        for rule in covered:
            covered[rule] += covers(row(summary, rule, "question"), truth)
            assert abs(row(summary, rule, "question")["n"] - planted) < 1.96 * np.sqrt(1000 * 0.4 * 0.6)
            assert abs(row(summary, rule, "answer")["delta_p"]) < 1
        assert row(summary, rule="flip", anchor="all", intervention="random_question")["delta_p"] == 0, "no change"
    assert min(covered.values()) >= 8, covered


@pytest.mark.parametrize(
    ("null", "honest"),
    [("N1", ["crossfit", "honest"]), ("N2", ["honest"])],
)
@pytest.mark.slow
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
    """Why `honest` exists: under N2 the forward pass's own noise selects, and crossfit keeps the gap."""
    assert row(measured("N2", 800, 0), "crossfit", "gap")["high"] < 0


def test_the_interval_is_a_bootstrap_over_clusters():
    """Against resampling by hand: draw subjects with replacement, average, take quantiles."""
    generator = np.random.default_rng(3)
    subjects = generator.integers(0, 25, 120)
    effect = generator.normal(size=25)[subjects] + 0.2 * generator.normal(size=120)
    names = [f"s{number:02d}" for number in subjects]
    drawn = resample(names, 1, 4000, seed=1).weights
    low, high = interval((drawn @ effect / drawn.sum(1))[:, None])
    members = [np.flatnonzero(subjects == number) for number in sorted(set(subjects))]
    means = []
    for _ in range(4000):
        chosen = generator.integers(0, len(members), len(members))
        means.append(np.concatenate([effect[members[index]] for index in chosen]).mean())
    np.testing.assert_allclose([low[0], high[0]], np.quantile(means, [0.025, 0.975]), atol=0.04)  # of 4000 draws
    naive = 1.96 * effect.std() / np.sqrt(120)
    assert high[0] - low[0] > 2 * 1.5 * naive, "clusters must widen the interval"


def test_the_interval_is_numpys_quantile_and_leaves_out_empty_draws():
    values = np.random.default_rng(0).normal(size=(501, 3))
    values[::7, 1] = np.nan
    low, high = interval(values)
    np.testing.assert_allclose(low, np.nanquantile(values, 0.025, axis=0))
    np.testing.assert_allclose(high, np.nanquantile(values, 0.975, axis=0))


LOG_3 = np.float32(np.log(3))  # the logit of 3/4


def table(anchored: list[bool]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """A delta table of one layer in which P goes from 3/4 to 1/4 for the given examples, and stays for the others."""
    count = len(anchored)
    after = np.where(anchored, -1.0, 1.0).astype(np.float32)
    columns = {
        "repeat": np.zeros(count, np.int8),
        "fold": np.arange(count, dtype=np.int8) // 2 % 5,
        "distance": np.ones(count, np.float32),
        "id": [f"{index:02d}" for index in range(count)],
        "cluster": [f"{index:02d}" for index in range(count)],
        "popularity": pl.Series([None] * count, dtype=pl.Int64),
        **{"question_form": ["who"] * count, "answer_form": ["other"] * count, "answer_in_question": [False] * count},
        "hallucinated": np.arange(count) % 2 == 0,
        "p_clean": np.full(count, 0.75, np.float32),
        "p_ko": np.where(anchored, 0.25, 0.75).astype(np.float32),
        "layer": np.zeros(count, dtype=np.int16),
        "delta_p": np.where(anchored, -50.0, 0.0),
        "flips": anchored,
    }
    for name in ("full", "half_a", "half_b", "second_b"):
        columns |= {f"logit_clean_{name}": np.full(count, LOG_3, np.float32), f"logit_ko_{name}": LOG_3 * after}
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
    found = summary_tables(
        *table([index < anchored for index in range(30)]), HEADLINE, bootstrap_draws=BOOTSTRAP_DRAWS, seed=0
    )
    flip = row(found["summary"], "flip", "question")
    assert flip["n"] == anchored
    assert flip["share"] == pytest.approx(anchored / 30)
    assert (flip["delta_p"] is None) is (flip["delta_logit"] is None) is (anchored == 0)
    if anchored:  # two chances in percent or two logits, and the mean over examples
        assert_same([flip["delta_p"]], [-50.0], of_sums(anchored + 8, 50.0, np.float32))
        assert_same([flip["delta_logit"]], [-2 * LOG_3], of_sums(anchored + 2, 2 * LOG_3, np.float32))
    assert (flip["low"] is None) is (anchored < 2)
    assert flip["better_than_chance"] is False
    assert row(found["summary"], "flip", "all")["n"] == 30
    for frame in (found[name] for name in ("summary", "series", "kinds", "strata", "forms")):
        for name, kind in frame.schema.items():
            assert not (kind.is_float() and frame[name].is_nan().any()), name
            assert not (kind.is_float() and frame[name].is_infinite().any()), name


@pytest.mark.parametrize(
    "changes", ["everything", *(pytest.param(other, marks=pytest.mark.slow) for other in ("nothing", "all alike"))]
)
def test_a_knockout_that_does_the_same_to_all_shows_no_kinds(changes):
    delta, _ = table([changes == "everything"] * 60)
    if changes == "all alike":
        clean = np.random.default_rng(0).normal(size=60).astype(np.float32)
        logits = {"clean": clean, "ko": 0.5 * clean + 1}
        delta = delta.with_columns(
            pl.Series(f"logit_{state}_{name}", values)
            for state, values in logits.items()
            for name in ("full", "half_a", "half_b", "second_b")
        )
    text = {name: pl.lit("words") for name in ("question", "property", "answer")}
    accounts, told_apart = weigh_kinds(
        delta, delta.select("id", **text), HEADLINE, bootstrap_draws=BOOTSTRAP_DRAWS, seed=0
    )
    assert told_apart.is_empty()
    gains = accounts.select("^(kinds|degrees)_.*$").to_numpy()
    np.testing.assert_array_equal(gains, np.zeros_like(gains))
    for name in ("correlation", "share_lost", "level_lost"):
        assert not accounts[name].is_nan().any()


def test_what_a_curve_comes_to():
    """Area, deepest layer and what is left of the gap under another rule, each against its definition.

    The tolerances are of means over so many examples with noise.
    """
    generator = np.random.default_rng(0)
    anchored = np.broadcast_to(np.arange(200) < 80, (4, 200))
    depth = np.array([0.0, -20.0, -40.0, -10.0])
    delta = depth[:, None] * anchored + generator.normal(size=(4, 200))
    drawn = resample([str(index) for index in range(200)], 1, 1000, seed=0)
    flip, other = (curves([role_result(anchored, part)], drawn) for part in (delta, delta / 4))
    found = series_row(other["gap"], flip["gap"])
    assert found["area"] == pytest.approx(np.mean(depth) / 4, abs=0.3)
    assert found["area_low"] < found["area"] < found["area_high"]
    assert (found["deepest_layer"], found["deepest_layer_low"], found["deepest_layer_high"]) == (2, 2, 2)
    assert found["deepest"] == pytest.approx(-10, abs=0.3)
    assert found["of_flip"] == pytest.approx(0.25, abs=0.01)
    assert found["of_flip_low"] <= 0.25 <= found["of_flip_high"]


def test_strata_are_the_same_estimates_on_parts_of_the_examples():
    delta, layers = tables("two pathways", 400, 0)
    found = summary_tables(delta, layers, HEADLINE, bootstrap_draws=BOOTSTRAP_DRAWS, seed=0)
    judged = {"judged_right", "judged_hallucinated", "near", "farther", "farthest"}
    assert set(found["strata"]["stratum"]) == {"right", "hallucinated", "unpopular", "middling", "popular"} | judged
    for stratum, part in (
        ("right", ~pl.col("hallucinated")),
        ("hallucinated", pl.col("hallucinated")),
        ("popular", pl.col("popularity") > 4),
    ):
        rows = delta.filter(part).sort("component", "position", "intervention", "repeat", "layer", "id")
        (place,) = read_places(rows).values()
        drawn = resample(rows["id"].unique(maintain_order=True).to_list(), 1, BOOTSTRAP_DRAWS, seed=0)
        alone = curves(group(place, "honest", "exact_question", "measured"), drawn)
        for anchor in ("question", "answer", "gap"):
            inside = row(found["strata"].filter(stratum=stratum), "honest", anchor)
            expected = alone[anchor]
            assert (inside["n"], inside["delta_p"]) == (round(expected.n[0]), pytest.approx(expected.delta_p.mean[0]))
            assert inside["low"] == pytest.approx(interval(expected.delta_p.resampled)[0][0], abs=4), "other draws"


def test_popularity_is_left_out_where_it_is_unknown():
    delta, layers = tables("two pathways", 200, 0)
    unknown = delta.with_columns(popularity=pl.lit(None, dtype=pl.Int64))
    strata = summary_tables(unknown, layers, HEADLINE, bootstrap_draws=BOOTSTRAP_DRAWS, seed=0)["strata"]
    assert not set(strata["stratum"]) & {"unpopular", "middling", "popular"}


def test_the_band_of_one_mechanism_holds_what_one_mechanism_shows_and_not_two_pathways():
    """Under N2 the published grouping shows what the band says; reversed evidence is far from it."""
    one = row(measured("N2", 800, 1), "flip", "gap")
    assert one["null_low"] <= one["delta_p"] <= one["null_high"]
    assert one["null_high"] < -20, "one mechanism alone shows a deep gap"
    two = row(measured("two pathways", 800, 1), "flip", "answer")
    assert not two["null_low"] <= two["delta_p"] <= two["null_high"]


@pytest.mark.parametrize(
    ("kind", "inside"), [pytest.param("N1", True, marks=pytest.mark.slow), ("N2", True), ("two pathways", False)]
)
def test_the_band_under_replicate_tells_two_pathways_from_one_mechanism(kind, inside):
    summary = measured(kind, 800, 1)
    for anchor in ("question", "answer", "gap"):
        found = row(summary, "honest", anchor)
        assert (found["null_low"] <= found["delta_p"] <= found["null_high"]) == inside, anchor


def test_a_series_has_the_area_that_one_mechanism_would_give():
    delta, layers = tables("two pathways", 400, 0)
    series = summary_tables(delta, layers, HEADLINE, bootstrap_draws=BOOTSTRAP_DRAWS, seed=0)["series"]
    wanted = {"labels": "plotted", "logits": "measured", "anchor": "gap"}
    (gap,) = series.filter(intervention="exact_question", rule="honest", **wanted).to_dicts()
    one = row(measured("two pathways", 400, 0), "honest", "gap")
    assert gap["area_null"] == pytest.approx(one["null"]), "of one layer"
    assert (gap["area_null_low"], gap["area_null_high"]) == pytest.approx((one["null_low"], one["null_high"]))
    assert gap["area_high"] < gap["area_null_low"]
    control = series.filter(intervention="random_question")
    assert control["area_null"].null_count() == control.height


def test_an_area_that_one_mechanism_hardly_ever_has_is_not_given():
    some = Uncertain(np.array([30.0, 30.0]), np.zeros((5, 2)))
    thirty = np.array([30.0, 30.0])
    curve = Curve(
        n=thirty, fewest=thirty, delta_p=some, delta_logit=some, share=some, judged_right=np.array([0.5, 0.5])
    )
    means = np.full((10, 2), np.nan)
    means[:5] = -3.0
    assert null_area(curve, means) == {"area_null": None, "area_null_low": None, "area_null_high": None}
    means[5] = -3.0
    assert null_area(curve, means) == {"area_null": -3.0, "area_null_low": -3.0, "area_null_high": -3.0}


@pytest.mark.parametrize(
    ("rule", "logits", "roles"),
    [
        ("honest", "measured", ((0, 1), (1, 0))),
        ("flip", "recentred", ((0, 0),)),
        ("honest", "residual", ((0, 1), (1, 0))),
    ],
)
def test_one_mechanism_is_what_a_plain_loop_gives(rule, logits, roles, monkeypatch):
    """Two prompts, three layers: under `honest` each prompt labels by its own shifts, and the other one measures."""
    monkeypatch.setattr("anchorscope.summarise.one_mechanism.CACHED", 2 * 40)  # two simulations at a time
    generator = np.random.default_rng(7)
    clean = generator.normal(size=(2, 3, 40))
    changed = 0.2 * clean - 0.5 + 0.7 * generator.normal(size=(2, 3, 40))
    found = simulate_null(clean[:, None], changed[:, None], rule, logits, simulations=5, seed=3)
    noise = np.random.default_rng(3).standard_normal((2, 5, 40), dtype=np.float32)

    def moved(prompt: int, layer: int, simulation: int, example: int) -> float:
        slope, level = np.polyfit(clean[prompt, layer], changed[prompt, layer], 1)
        spread = np.std(changed[prompt, layer] - level - slope * clean[prompt, layer])
        middle = {
            "measured": level + slope * clean[prompt, layer],
            "recentred": slope * clean[prompt, layer] - np.mean((slope - 1) * clean[prompt, layer]),
            "residual": clean[prompt, layer],
        }[logits]
        return middle[example] + spread * noise[prompt, simulation, example]

    expected = {name: np.empty((5, 3)) for name in found}
    for simulation in range(5):
        for layer in range(3):
            means = {True: [], False: []}
            for labels, measures in roles:
                groups = {True: [], False: []}
                for example in range(40):
                    told = clean[labels, layer, example]
                    cut = moved(prompt=labels, layer=layer, simulation=simulation, example=example)
                    if logits == "residual":
                        flipped = bool(cut < told if told >= 0 else cut > told)
                    else:
                        flipped = bool((told >= 0) != (cut >= 0))
                    before = clean[measures, layer, example]
                    after = moved(prompt=measures, layer=layer, simulation=simulation, example=example)
                    side = 1 if before >= 0 else -1
                    groups[flipped].append(100 * (sigmoid(side * after) - sigmoid(side * before)))
                for flipped, values in groups.items():
                    means[flipped].append(np.mean(values))
            question, answer = np.mean(means[True]), np.mean(means[False])
            for name, value in {"question": question, "answer": answer, "gap": question - answer}.items():
                expected[name][simulation, layer] = value
    # A logit in three steps, of which a quarter reaches a chance, two chances in percent, and their means in double
    # precision; a gap has two of these.
    largest = np.abs(changed).max() + np.abs(clean).max()
    rounding = of_sums(3, 100 * largest / 4, np.float32) + of_sums(8, 100.0, np.float32)
    for name, values in expected.items():
        assert_same(found[name], values, 2 * rounding if name == "gap" else rounding)


def gap_of(clean: np.ndarray, changed: np.ndarray) -> float:
    """Q minus A under `honest`, from logits [2 prompts, 1 layer, examples]."""
    flipped = (clean >= 0) != (changed >= 0)
    side = np.where(clean >= 0, 1, -1)
    delta = 100 * (sigmoid(side * changed) - sigmoid(side * clean))
    gaps = [delta[1 - one, 0][flipped[one, 0]].mean() - delta[1 - one, 0][~flipped[one, 0]].mean() for one in (0, 1)]
    return float(np.mean(gaps))


def test_a_knockout_that_pushes_every_example_to_one_verdict_makes_a_gap_that_one_mechanism_explains():
    """The verdict is a property of the example, so `honest` finds a gap; its band holds it."""
    generator = np.random.default_rng(0)
    verdict = np.where(np.arange(600) % 2, 2.0, -2.0)
    clean = verdict + generator.normal(scale=0.3, size=(2, 1, 600))
    changed = 1.5 + generator.normal(scale=0.5, size=(2, 1, 600))
    band = simulate_null(clean[:, None], changed[:, None], "honest", "measured", simulations=200, seed=0)
    low, high = np.quantile(band["gap"], [0.025, 0.975])
    assert gap_of(clean, changed) < -50
    assert low <= gap_of(clean, changed) <= high


def test_a_graded_shift_that_belongs_to_the_example_is_beyond_one_mechanism_without_two_kinds():
    """Why a gap beyond the band is not yet two pathways: the shifts have one hump."""
    generator = np.random.default_rng(0)
    clean = np.where(np.arange(800) % 2, 2.0, -2.0) + generator.normal(size=(2, 1, 800))
    graded = 2 * generator.normal(size=800)
    changed = 0.8 * clean + graded + 0.3 * generator.normal(size=(2, 1, 800))
    band = simulate_null(clean[:, None], changed[:, None], "honest", "measured", simulations=200, seed=0)
    assert gap_of(clean, changed) < np.quantile(band["gap"], 0.025) - 20


def test_the_deepest_table_holds_every_example_where_question_anchored_is_lowest():
    delta, layers = tables("two pathways", 200, 0, repeats=2)
    forms = {name: "choice" if number % 3 else "who" for number, name in enumerate(sorted(set(delta["id"])))}
    delta = delta.with_columns(question_form=pl.col("id").replace_strict(forms))
    deeper = delta.with_columns(pl.col("^logit_.*$") * 1.1, layer=pl.lit(1, pl.Int16))
    both = pl.concat([delta, deeper])
    found = summary_tables(
        both,
        pl.concat([layers, layers.with_columns(layer=pl.lit(1, pl.Int16), is_reference=False)]),
        HEADLINE,
        bootstrap_draws=BOOTSTRAP_DRAWS,
        seed=0,
    )["deepest"]
    assert set(found["layer"]) == {1}
    assert sorted(found.filter(intervention="exact_question")["id"]) == sorted(set(delta["id"]))
    own = found.filter(intervention="exact_question").sort("id")
    means = deeper.filter(intervention="exact_question").group_by("id").agg(pl.col("^logit_.*$").mean()).sort("id")
    clean, cut = (means[f"logit_{state}_full"].to_numpy() for state in ("clean", "ko"))
    # A mean over two repeats, of which a quarter reaches a chance, which is kept in single precision.
    largest = max(np.abs(clean).max(), np.abs(cut).max(), means["logit_ko_second_b"].abs().max())
    rounding = of_sums(2, largest, np.float32)
    assert_same(own["p_clean"], sigmoid(clean.astype(float)), rounding / 4 + of_sums(1, 1.0, np.float32))
    assert_same(own["p_ko"], sigmoid(cut.astype(float)), rounding / 4 + of_sums(1, 1.0, np.float32))
    assert dict(own.select("id", "question_form").iter_rows()) == forms
    assert own["question_anchored"].to_list() == ((clean >= 0) != (cut >= 0)).tolist()
    assert_same(own["logit_ko_second"], means["logit_ko_second_b"], rounding)


def test_the_fitted_shift_is_that_of_least_squares():
    generator = np.random.default_rng(4)
    clean = generator.normal(size=300)
    changed = 0.4 * clean - 1.1 + 0.3 * generator.normal(size=300)
    slope, level = np.polyfit(clean, changed - clean, 1)
    found = fit_shift(clean, changed)
    assert found[:2] == pytest.approx((level, slope))
    np.testing.assert_allclose(found[2], changed - clean - level - slope * clean, atol=1e-9)
    assert fit_shift(np.zeros(5), np.arange(5.0))[1] == 0


def test_kappa_and_correlation_agree_with_their_definitions():
    generator = np.random.default_rng(5)
    labels = np.stack([generator.random(300) < 0.3] * 2)
    labels[1] ^= generator.random(300) < 0.2
    delta = generator.normal(size=(2, 300))
    delta[1] += delta[0]
    drawn = resample([str(index) for index in range(300)], 1, 500, seed=0)
    roles = [role_result(label[None], change[None]) for label, change in zip(labels, delta, strict=True)]
    found = agreement(roles, 0, drawn)
    assert found["kappa"] == pytest.approx(cohen_kappa_score(*labels))
    assert found["correlation"] == pytest.approx(np.corrcoef(delta)[0, 1])
    assert found["kappa_low"] < found["kappa"] < found["kappa_high"]
    wide = 4 * 0.5 / np.sqrt(300)  # four standard errors, (1 - r^2) / n^1/2 each; the ends are of 500 draws
    assert found["correlation_high"] - found["correlation_low"] == pytest.approx(wide, rel=0.4)


def test_what_cannot_be_said_is_left_empty():
    drawn = resample([str(index) for index in range(40)], 1, 100, seed=0)
    same = np.ones((2, 40))
    found = agreement([role_result(part[None] > 0, part[None]) for part in same], 0, drawn)
    assert set(found.values()) == {None}
    assert set(shape(same, same, seed=0).values()) == {None}


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
        assert dip(sample) == pytest.approx(plain_dip(sample), abs=1e-7), "as far as linear programs are solved"


@pytest.mark.parametrize("alike", [False, True], ids=["by layer", "in all layers"])
def test_the_means_of_all_groups_at_once_are_those_of_each(alike):
    generator = np.random.default_rng(10)
    weights = resample([str(index // 2) for index in range(12)], 1, 40, seed=0).weights
    counted, *labels = (
        np.broadcast_to(generator.random((1 if alike else 3, 12)) < share, (3, 12))
        for share in (0.3, 0.3, 0.0, 1.0, 0.7, 0.5)  # some draw none, and either group is the smaller
    )
    values = generator.normal(size=(2, 3, 12))
    largest = 12 * np.abs(values).max()  # of a sum: as many examples are drawn
    steps = 2 * 12 + 2  # two sums, their difference, and its quotient by one or more
    for dtype in (np.float32, np.float64):
        found = group_sums(weights.astype(dtype), np.stack(labels), counted, values)
        for inside, sums in zip(labels, found, strict=True):
            groups = [inside & counted, ~inside & counted, counted]
            means, shares = group_means(sums)
            expected = [[weighted_mean(weights, some, mask) for some in values] for mask in groups]
            assert_same(means, expected, of_sums(steps, largest, dtype))
            of_all = [weighted_mean(weights, mask.astype(float), counted) for mask in groups]
            assert_same(shares, of_all, of_sums(1, 1.0, dtype))  # a quotient of counts, which are exact in any dtype
            assert np.isnan(means).any()
            assert np.isnan(shares).any()


def test_the_mean_of_a_small_group_is_not_what_others_leave():
    """A sum of many large values would round off the one that is small."""
    inside = np.arange(1000)[None] == 7
    values = np.where(inside, 0.001, 1000.0)[None]
    sums = group_sums(np.ones((1, 1000), np.float32), inside[None], np.ones_like(inside), values)
    assert_same(group_means(sums[0])[0][0], [[[0.001]]], of_sums(2, 0.001, np.float32))


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
        # A height on a hull: two differences, a quotient, a product, a sum, and the sample's own height less that.
        assert_same(dips(samples), [narrowed_dip(sample) for sample in samples], of_sums(6, largest=1.0))


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


def test_a_class_too_small_to_probe_says_how_small():
    labels = np.array([True] * 50 + [False] * 7)
    found = examples_of(keys(labels), folds=5, repeats=2, seed=0, where="m on d")
    assert re.match(r"m on d: 7 right and 50 hallucinated .* 20 of each are needed", found.why)
    with pytest.raises(ValueError, match=re.escape(found.why)):
        enough(found)


def test_labels_that_are_all_equal_say_so():
    found = examples_of(keys(np.ones(60, bool)), folds=5, repeats=2, seed=0, where="m on d")
    assert re.match(r"m on d: 0 right and 60 hallucinated .* 20 of each are needed", found.why)


def test_a_fold_without_a_class_says_which():
    some = keys(np.arange(60) % 2 == 0)
    for key in some:
        key["subject"] = "one" if key["right"] else key["id"]
    found = examples_of(some, folds=5, repeats=2, seed=0, where="m on d")
    assert re.match(r"m on d: fold \d or a half of its training data has one class only", found.why)


def test_probes_that_read_nothing_are_marked_and_so_are_folds_that_did_not_arrive(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    labels = np.arange(120) % 2 == 0
    states = torch.randn(2, 120, 20, generator=generator)
    states[1, :, 0] += torch.from_numpy(labels) * 3.0
    examples = examples_of(keys(labels), folds=5, repeats=2, seed=0, where="m on d")

    def marks() -> pl.DataFrame:
        found = measure(dict.fromkeys(PASSES, states), examples)
        return layers_table(found, examples).filter(intervention="clean").sort("layer")

    assert marks()["better_than_chance"].to_list() == [False, True]
    assert marks()["unconverged_folds"].to_list() == [[], []]
    monkeypatch.setattr(logistic, "NEWTON_STEPS", 1)
    assert marks()["unconverged_folds"].to_list() == [[0, 1, 2, 3, 4]] * 2


@pytest.mark.parametrize("truth", TRUTHS)
def test_each_kind_of_logits_names_what_was_planted(truth):
    """A push makes a gap that goes when logits are recentred, a shrink one that goes in the residuals."""
    kind, common = TRUTHS[truth]
    clean, cut = planted_logits(kind, 600, seed=1, **common)
    below = {logits: gap_without(clean, cut, logits)[1] < 0 for logits in ("measured", "recentred", "residual")}
    if kind == "two kinds":
        assert below == {"measured": True, "recentred": True, "residual": True}
    else:
        assert not below["residual"]
        if truth == "a push":
            assert below["measured"]
            assert not below["recentred"]


def test_what_is_taken_out_is_fitted_on_the_other_folds():
    """Against a loop over examples."""
    generator = np.random.default_rng(0)
    clean, changed = generator.normal(size=(2, 2, 3, 25))
    folds = generator.integers(0, 5, (2, 25))
    for logits, degree in (("recentred", 0), ("residual", 1)):
        found = without_push(clean, changed, folds, logits)
        for repeat, layer, example in np.ndindex(clean.shape):
            others = folds[repeat] != folds[repeat, example]
            before, shift = clean[repeat, layer], changed[repeat, layer] - clean[repeat, layer]
            common = np.polyval(np.polyfit(before[others], shift[others], degree), before[example])
            assert found[repeat, layer, example] == pytest.approx(changed[repeat, layer, example] - common)


def test_repeats_are_averaged_and_widen_the_interval_by_how_far_they_differ():
    """Against the variance of a mean, and of what other questions give to probes that saw a share of these.

    Resampling alone gives one part, the repeats' own spread the others.
    """
    generator = np.random.default_rng(2)
    anchored = np.broadcast_to(np.arange(400) < 150, (5, 1, 400))
    base = generator.normal(size=(1, 1, 400)) - 10 * anchored
    apart = np.array([-3.0, -1.0, 0.0, 1.0, 3.0])[:, None, None] * anchored
    everyone = np.ones_like(anchored)
    drawn = resample([str(index) for index in range(400)], 5, 4000, seed=0)

    def question(delta: np.ndarray, share_learnt: float) -> Uncertain:
        return curves([RoleResult(anchored, delta, delta, everyone, everyone, share_learnt)], drawn)["question"].delta_p

    for share_learnt, other_questions in ((0.8, 4), (0.4, 2 / 3)):
        same, different = (
            question(delta, share_learnt) for delta in (np.broadcast_to(base, anchored.shape), base + apart)
        )
        assert different.mean == pytest.approx(same.mean)
        added = different.resampled.var() - same.resampled.var()
        expected = np.var([-3, -1, 0, 1, 3], ddof=1) * (1 / 5 + other_questions)
        assert added == pytest.approx(expected, rel=0.1), "of 4000 draws"


def test_the_auc_of_every_resample_is_that_of_the_examples_drawn():
    generator = np.random.default_rng(3)
    positive = generator.random(60) < 0.5
    logits = np.round(generator.normal(positive * 1.0, 1.0, (2, 60)), 1)  # with ties
    weights = resample([str(index) for index in range(60)], 1, 20, seed=0).weights
    found = np.stack([resampled_auc(row, positive, weights.T) for row in logits], axis=1)
    for number, counts in enumerate(weights.astype(int)):
        drawn = np.repeat(np.arange(60), counts)
        for layer in range(2):
            assert found[number, layer] == pytest.approx(roc_auc_score(positive[drawn], logits[layer, drawn]))


def test_labels_at_reference_layers_are_averaged_over_the_layers_near_the_best():
    """Three layers: two rank alike, one does not; labels of the third never count."""
    generator = np.random.default_rng(4)
    hallucinated = np.arange(300) % 2 == 0
    signal = np.array([2.0, 2.0, 0.0])[:, None] * np.where(hallucinated, 1, -1)
    clean = (signal + generator.normal(size=(3, 300)))[None]
    drawn = resample([str(index) for index in range(300)], 1, 300, seed=0)
    with ThreadPoolExecutor(2) as pool:
        layers = reference_layers(clean, hallucinated, drawn, pool)
    assert not layers.chosen[2]
    anchored = generator.random((1, 3, 300)) < 0.4
    delta = generator.normal(size=(1, 3, 300))
    everyone = np.ones_like(anchored)
    result = RoleResult(anchored, delta, delta, everyone, everyone, share_learnt=0.4)
    by_layer = curves_labelled_at([result], drawn, layers.used)
    found = reference_curves(by_layer, layers)["question"].delta_p.mean
    expected = [[delta[0, at, anchored[0, label]].mean() for at in range(3)] for label in np.flatnonzero(layers.chosen)]
    np.testing.assert_allclose(found, np.mean(expected, axis=0))


def labelled_at(roles: list[RoleResult], layer: int, anchored: bool, drawn: Resamples) -> tuple[np.ndarray, ...]:
    """The mean change [layers] of those that are Question-Anchored at a layer or not, and of each resample."""

    def means(weights: np.ndarray) -> np.ndarray:
        """[repeats, resamples, layers], one example after the other."""
        groups = [np.broadcast_to(one.question_anchored[:, [layer]] == anchored, one.delta_p.shape) for one in roles]
        return np.mean(
            [
                [weighted_mean(weights, change, who) for change, who in zip(one.delta_p, group, strict=True)]
                for one, group in zip(roles, groups, strict=True)
            ],
            axis=0,
        )

    once = means(np.ones((1, drawn.weights.shape[1])))[:, 0]
    mean, moved = drawn.over_repeats(once, roles[0].share_learnt)
    return mean, means(drawn.weights).mean(0) + moved


def test_the_table_averages_single_reference_layers_whichever_are_computed_together(monkeypatch):
    monkeypatch.setattr(pair_tables, "LAYERS_AT_ONCE", 2)
    delta, layers = tables("two pathways", 120, seed=0, repeats=2, layers=3)
    found = summary_tables(delta, layers, HEADLINE, bootstrap_draws=100, seed=0, threads=2)["summary"]
    delta = delta.sort("intervention", "repeat", "layer", "id")
    (place,), examples = read_places(delta).values(), delta.head(120)
    drawn = resample(examples["cluster"].to_list(), 2, 100, seed=0)
    with ThreadPoolExecutor(1) as pool:
        best = reference_layers(place.clean["full"], examples["hallucinated"].to_numpy(), drawn, pool)
    assert list(best.used) == [0, 1, 2]
    for rule, (anchor, anchored) in product(("fixed", "crossfit", "honest"), (("question", True), ("answer", False))):
        roles = group(place, rule, "exact_question", "measured")
        means, resampled = zip(*(labelled_at(roles, layer, anchored, drawn) for layer in best.used), strict=True)
        expected = np.mean([means[layer] for layer in np.flatnonzero(best.chosen)], axis=0)
        by_resample = [
            np.mean([resampled[layer][number] for layer in np.flatnonzero(chosen)], axis=0)
            for number, chosen in enumerate(best.drawn)
        ]
        rows = found.filter(labels="reference", rule=rule, anchor=anchor).sort("layer")
        assert_same(rows["delta_p"], expected, of_sums(120, 100.0))
        inside = np.concatenate([one.question_anchored for one in roles]) == anchored
        fewest = (inside @ drawn.weights.T).min()  # of the group that any resample draws
        rounding = of_sums(2 * 120 + 2, 120 * 100.0 / fewest, np.float32)  # two sums, their difference and its quotient
        assert_same(rows.select("low", "high"), np.transpose(interval(np.stack(by_resample))), rounding)


def test_shuffled_labels_stay_in_their_fold_and_tell_nothing():
    states, hallucinated, _ = simulate("two pathways", 400, 0)
    examples = examples_of(keys(hallucinated), folds=5, repeats=2, seed=0, where="simulation")
    for split in examples.splits:
        assert (split.shuffled != hallucinated).mean() > 0.3
        for fold in range(5):
            assert split.shuffled[split.folds == fold].sum() == hallucinated[split.folds == fold].sum()
    clean = layers_table(measure(states, examples), examples).filter(intervention="clean").row(0, named=True)
    assert clean["auc_low_shuffled"] < 0.5 < clean["auc_high_shuffled"]
    assert clean["selectivity"] == pytest.approx(clean["auc"] - clean["auc_shuffled"])
    assert clean["selectivity"] > 0.3


def test_every_rule_labels_and_measures_with_the_probes_that_it_names():
    """Against the definition, example by example, from the columns of the delta table."""
    delta, _ = tables("two pathways", 120, 1, repeats=2)
    delta = delta.sort("component", "position", "intervention", "repeat", "layer", "id")
    (place,) = read_places(delta).values()
    rows = delta.filter(intervention="exact_question")
    for rule, roles in ROLES.items():
        for role, found in zip(roles, group(place, rule, "exact_question", "measured"), strict=True):
            before, after = (rows[f"logit_{state}_{role.labels.name}"].to_numpy() for state in ("clean", "ko"))
            assert found.question_anchored.ravel().tolist() == ((before >= 0) != (after >= 0)).tolist()
            assert found.judged_right.ravel().tolist() == (before < 0).tolist()
            before, after = (rows[f"logit_{state}_{role.measures.name}"].to_numpy() for state in ("clean", "ko"))
            before, after = before.astype(float), after.astype(float)
            side = np.where(before >= 0, 1, -1)
            delta_p = 100 * (sigmoid(side * after) - sigmoid(side * before))
            assert_same(found.delta_p.ravel(), delta_p, of_sums(8, 100.0, np.float32))  # two chances in percent
            largest = np.abs(before).max() + np.abs(after).max()
            assert_same(found.delta_logit.ravel(), side * (after - before), of_sums(1, largest, np.float32))


def test_the_distance_of_clean_states_is_that_of_a_plain_mahalanobis_distance():
    """All directions of a narrow layer, fold by fold, with NumPy's covariance."""
    generator = np.random.default_rng(5)
    clean = generator.normal(size=(1, 200, 6)) @ np.diag([5, 3, 2, 1, 1, 0.5]) + 4
    far = clean + generator.normal(scale=3, size=clean.shape)
    folds = np.arange(200) % 5
    states = {"clean": torch.tensor(clean), "exact_question": torch.tensor(far)}
    found = distances(states, torch.from_numpy(folds))
    # Means over examples and sums over directions, in units of the least spread.
    largest, least = max(np.abs(clean).max(), np.abs(far).max()), np.linalg.svd(np.cov(clean[0].T))[1][-1] ** 0.5
    rounding = of_sums(160 + 6, largest / least, np.float32)
    for name, vectors in states.items():
        for example in range(0, 200, 17):
            train = clean[0, folds != folds[example]]
            away = vectors[0, example].numpy() - train.mean(0)
            expected = np.sqrt(away @ np.linalg.inv(np.cov(train.T, bias=True)) @ away / 6)
            assert_same([found[name][0, example]], [expected], rounding)
