"""Claims are judged by their intervals alone, and a probe that reads nothing decides nothing."""

from dataclasses import replace
from itertools import product

import numpy as np
import polars as pl
import pytest
import yaml

from anchorscope.summarise.bootstrap import resample
from anchorscope.summarise.claims import (
    CLAIMS,
    Findings,
    JudgedClaim,
    Run,
    judge_claims,
    larger_neighbours,
    reads_truth,
    verdict_on,
)
from anchorscope.summarise.claims_page import claims_page
from anchorscope.summarise.curves import Uncertain, curves, series_row
from anchorscope.summarise.findings import Comparison, beside_null, compare_landmark, published_beside_measured
from anchorscope.summarise.grouping import LOGITS, RoleResult
from anchorscope.summarise.verdict_on_kinds import COMPARED
from small_things import ROOT

LAYERS, BOOTSTRAP_DRAWS = 16, 400


def curve(values, spread: float = 1.0, seed: int = 0) -> Uncertain:
    """A curve whose resamples scatter around `values` [layers]."""
    mean = np.broadcast_to(np.asarray(values, float), (LAYERS,)).copy()
    noise = np.random.default_rng(seed).normal(scale=spread, size=(BOOTSTRAP_DRAWS, LAYERS))
    return Uncertain(mean, mean + noise)


DEEP = np.concatenate([[0, -5], np.full(LAYERS - 2, -40.0)])


def run(model="m", dataset="d", question=DEEP, answer=-2.0, control=0.5, reads=True, spread=1.0) -> Run:
    q, a = curve(question, spread, 1), curve(answer, spread, 2)
    gap = Uncertain(q.mean - a.mean, q.resampled - a.resampled)
    half = Uncertain(gap.mean / 2, gap.resampled / 2)
    return Run(
        model=model,
        dataset=dataset,
        question=q,
        answer=a,
        gaps={"measured": gap, "recentred": half, "residual": Uncertain(0 * gap.mean, gap.resampled - gap.mean)},
        control=curve(control, spread, 3),
        reads_truth=reads,
    )


def judged(runs: list[Run], sizes=()) -> list[JudgedClaim]:
    """The change of the logit is a 25th of delta P here."""

    def smaller(some: Uncertain) -> Uncertain:
        return Uncertain(some.mean / 25, some.resampled / 25)

    in_logits = [
        replace(
            one,
            **{name: smaller(getattr(one, name)) for name in ("question", "answer", "control")},
            gaps={name: smaller(gap) for name, gap in one.gaps.items()},
            bounds=1 / 25,
        )
        for one in runs
    ]
    return judge_claims({"delta_p": runs, "delta_logit": in_logits}, list(sizes))


def verdicts(runs: list[Run], sizes=(), logits="measured", **where) -> dict[int, str]:
    rows = [row for row in judged(runs, sizes) if row.logits == logits]
    return {row.claim: row.verdict for row in rows if all(getattr(row, name) == value for name, value in where.items())}


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(-3, -1, "supported"), (1, 3, "contradicted"), (-1, 1, "undecided"), (-3, 0, "supported")],
)
def test_a_verdict_is_where_the_interval_lies(low, high, verdict):
    assert verdict_on(low, high, (-np.inf, 0.0)) == verdict


def test_the_published_picture_supports_every_claim_about_one_model():
    runs = [run(dataset="one"), run(dataset="two", question=DEEP - 5)]
    supported = dict.fromkeys((1, 2, 3, 5, 6), "supported")
    assert verdicts(runs, dataset=None) == {**supported, 4: "does not apply"}
    assert verdicts(runs, dataset="two") == dict.fromkeys((1, 2, 3, 6), "supported")


@pytest.mark.parametrize(
    ("changed", "claim"),
    [
        ({"question": 10.0}, 1),
        ({"answer": -30.0}, 2),
        ({"question": -DEEP - 45}, 3),
        ({"control": np.where(np.arange(LAYERS) == 7, -12.0, 0.0)}, 6),
    ],
)
def test_a_clear_contrary_contradicts_its_claim(changed, claim):
    assert verdicts([run(**changed)])[claim] == "contradicted"


@pytest.mark.parametrize("claim", [1, 2, 3, 6])
def test_wide_intervals_decide_nothing(claim):
    assert verdicts([run(question=DEEP / 10, spread=60.0)])[claim] == "undecided"


def test_a_probe_no_better_than_chance_decides_nothing():
    rows = [row for row in judged([run(reads=False)]) if row.claim not in (4, 5)]
    assert {row.verdict for row in rows} == {"undecided"}
    assert {row.because for row in rows} == {"the probe is no better than chance"}
    mixed = [run(dataset="one"), run(dataset="two", question=60.0, reads=False)]
    assert verdicts(mixed, dataset=None)[1] == "supported", "a dataset without a say has none"


def test_datasets_that_differ_in_one_third_of_the_depth_are_not_similar():
    late = DEEP - 45 * (np.arange(LAYERS) >= 11)
    assert verdicts([run(dataset="one"), run(dataset="two", question=late)])[5] == "contradicted"
    assert verdicts([run(dataset="one"), run(dataset="two", reads=False)])[5] == "undecided"


def test_a_larger_model_has_more_parameters_and_not_just_a_later_version():
    parameters = {"1b": 1_236, "3b": 3_213, "v0.1": 7_242, "v0.3": 7_248}
    assert larger_neighbours([["1b", "3b"], ["v0.1", "v0.3"], ["3b", "1b"]], parameters) == [("1b", "3b")]


def test_the_larger_model_goes_deeper_or_it_does_not():
    shallow, deep = run("small", question=DEEP / 2), run("large", question=DEEP)
    assert verdicts([shallow, deep], [["small", "large"]])[4] == "supported"
    assert verdicts([shallow, deep], [["large", "small"]])[4] == "contradicted"
    rows = judged([shallow, run("large", dataset="other")], [["small", "large"]])
    (row,) = (row for row in rows if row.claim == 4)
    assert (row.verdict, row.effect) == ("undecided", None)
    (row,) = (row for row in judged([shallow, deep], [["small", "large"]]) if row.claim == 4)
    assert row.effect == pytest.approx(-20)


def test_a_claim_that_does_not_apply_says_why():
    alone = {row.claim: (row.model, row.verdict, row.effect, row.because) for row in judged([run()])}
    assert alone[4] == ("m", "does not apply", None, "the run has one model")
    assert alone[5] == ("m", "does not apply", None, "only one dataset was probed")
    assert set(alone) == {claim.number for claim in CLAIMS.values()} == {1, 2, 3, 4, 5, 6}
    equal = [row for row in judged([run("a"), run("b")]) if row.claim == 4]
    assert [(row.model, row.because) for row in equal] == [
        (model, "no figure shows a model beside a larger one") for model in "ab"
    ]


def test_a_band_holds_for_all_layers_at_once():
    """Curves that are truly at the bound in every layer: few of them may be called contradicted."""
    wrong = 0
    for seed in range(200):
        noise = np.random.default_rng(seed).normal(size=(BOOTSTRAP_DRAWS + 1, LAYERS))
        answer = Uncertain(-10 + noise[0], -10 + noise[0] + noise[1:])
        row = next(row for row in judged([replace(run(), answer=answer)]) if row.claim == 2)
        wrong += row.verdict == "contradicted"
    assert wrong <= 14


def test_a_group_without_examples_decides_nothing():
    nothing = Uncertain(np.full(LAYERS, np.nan), np.full((BOOTSTRAP_DRAWS, LAYERS), np.nan))
    empty = replace(run(), question=nothing, gaps=dict.fromkeys(LOGITS, nothing))
    rows = {row.claim: row for row in judged([empty])}
    for claim in (1, 3):
        assert (rows[claim].verdict, rows[claim].because) == ("undecided", "a group has no examples")


@pytest.mark.parametrize(
    ("best", "error", "reads"), [(0.6, 0.02, True), (0.6, 0.06, False), (0.52, 0.02, False), (0.9, 0.13, False)]
)
def test_the_best_layer_must_beat_chance_although_it_was_chosen_among_all(best, error, reads):
    auc = np.full(30, 0.5)
    auc[12] = best
    table = pl.DataFrame({"intervention": "clean", "layer": range(30), "auc": auc}).with_columns(
        auc_low=pl.col("auc") - 1.96 * error,
        auc_high=(pl.col("auc") + 1.96 * error).clip(upper_bound=1),
        is_reference=pl.col("layer") == 12,
    )
    assert reads_truth(table) is reads


def test_the_gap_that_is_judged_is_the_series_area_and_a_layer_with_one_example_counts_in_both():
    anchored = np.stack(
        [np.arange(100) < 1, np.arange(100) < 40, np.arange(100) < 0]
    )  # layers with 1, 40 and no example
    delta = np.where(anchored, -40.0, 0.0) + np.random.default_rng(0).normal(size=anchored.shape)
    everyone = np.ones((1, *delta.shape), bool)
    result = RoleResult(
        anchored[None],
        delta[None],
        delta_logit=delta[None] / 25,
        judged_right=everyone,
        counted=everyone,
        share_learnt=0.8,
    )
    gap = curves([result], resample([str(index) for index in range(100)], 1, 500, seed=0))["gap"]
    series = series_row(gap)
    assert gap.fewest.tolist() == [1, 40, 0]
    assert series["area"] == pytest.approx(np.mean([delta[0, 0] - delta[0, 1:].mean(), gap.delta_p.mean[1]]))
    assert series["deepest_layer"] == 1, "one example makes no deepest layer"
    claims = judged([replace(run(), gaps=dict.fromkeys(LOGITS, gap.delta_p))])
    (claim,) = [row for row in claims if (row.claim, row.dataset, row.logits) == (1, "d", "measured")]
    assert (claim.effect, claim.low, claim.high) == pytest.approx(
        [series[f"area{end}"] for end in ("", "_low", "_high")]
    )


def flip(values: dict[tuple[str, str], list[float]]) -> pl.DataFrame:
    return pl.DataFrame(
        [
            {"dataset": dataset, "anchor": anchor, "layer": layer, "delta_p": value}
            for (dataset, anchor), curve in values.items()
            for layer, value in enumerate(curve)
        ]
    )


def test_landmarks_stand_beside_what_was_measured():
    published = [
        {"name": "last", "anchor": "question", "layers": [3, 3], "published": [-45, -30]},
        {"name": "deepest", "anchor": "question", "layers": [1, 2], "published": [-55, -55], "deepest": "popqa"},
        {"name": "flat", "anchor": "answer", "layers": [0, 3], "published": [-10, 0]},
    ]
    near = flip(
        {("p", "question"): [-10, -62, -40, -25], ("n", "question"): [-9, -30, -70, -50], ("p", "answer"): [0.0] * 4}
    )
    both = {"p": "popqa", "n": "nq"}
    last, deepest, flat = (compare_landmark(landmark, tolerance=10, flip=near, layouts=both) for landmark in published)
    assert (last["measured_low"], last["measured_high"], last["agrees"]) == (-50, -25, True)
    assert (deepest["measured_low"], deepest["layers"], deepest["agrees"]) == (-62, "1–1", True)
    assert flat["agrees"] is True
    far = flip({("p", "question"): [-60, -10, -10, -80], ("p", "answer"): [0.0, -25.0, 0.0, 0.0]})
    last, deepest, flat = (
        compare_landmark(landmark, tolerance=10, flip=far, layouts={"p": "popqa"}) for landmark in published
    )
    assert (last["agrees"], deepest["agrees"], flat["agrees"]) == (False, False, False)
    assert compare_landmark(published[1], tolerance=10, flip=near, layouts={"n": "nq"})["agrees"] is None, (
        "not measured on that dataset"
    )


def test_landmarks_are_compared_with_published_questions_only():
    """A bundled dataset, and a user's own, stand beside a published one."""
    place = {"rule": "flip", "logits": "measured", "intervention": "exact_question"}
    rows = flip({(name, "question"): [value] for name, value in (("p", -40.0), ("mini", -90.0), ("mine", 20.0))})
    sources = pl.col("dataset").replace_strict({"p": "hub", "mini": "bundled", "mine": "file"}).alias("source")
    summary = rows.with_columns(sources, model=pl.lit("m"), **{name: pl.lit(value) for name, value in place.items()})
    landmark = {"name": "first", "anchor": "question", "layers": [0, 0], "published": [-45, -30]}
    published = {"tolerance": 10, "models": {"owner/m": [landmark]}}
    layouts = {"p": "popqa", "mini": "nq", "mine": "own"}
    models = {"m": {"source": {"hub": "owner/m"}}}
    (found,) = published_beside_measured(Comparison([], layouts, published), summary, models)
    assert (found["measured_low"], found["measured_high"], found["agrees"]) == (-40.0, -40.0, True)
    (none,) = published_beside_measured(Comparison([], {"mini": "nq"}, published), summary, models)
    assert none["agrees"] is None


def test_the_shipped_landmarks_fit_the_published_models():
    landmarks = yaml.safe_load((ROOT / "workflow/resources/landmarks.yaml").read_text())
    paper = yaml.safe_load((ROOT / "config/paper.yaml").read_text())
    assert set(landmarks["models"]) <= {model.get("hub") for model in paper["models"].values()}
    for model, last in zip(landmarks["models"].values(), (15, 27, 35, 63), strict=True):
        assert max(row["layers"][1] for row in model) == last
        assert all(row["published"][0] <= row["published"][1] <= 0 for row in model)


def test_the_page_shows_every_verdict_and_the_landmarks():
    rows = judged([run("small", question=DEEP / 2), run("large")], [["small", "large"]])
    beside = compare_landmark(
        {"name": "last", "anchor": "question", "layers": [0, 0], "published": [-45, -30]},
        tolerance=10,
        flip=flip({("d", "question"): [-40.0]}),
        layouts={},
    )
    null = {
        "model": "small",
        "dataset": "d",
        "logits": "recentred",
        "area": -20.0,
        "area_low": -22.0,
        "area_high": -18.0,
    }
    null |= {"area_null": -5.0, "area_null_low": -7.0, "area_null_high": -3.0, "beyond": True}
    ends = (("", 0.0), ("_low", -0.125), ("_high", 0.125))
    gains = {f"{name}{end}": 0.25 + shift for name, (end, shift) in product(COMPARED, ends)}
    kinds = {"model": "small", "dataset": "d", "n": 812, **gains, "verdict": "two kinds", "could_see_share": 0.081}
    within = [{"among": "question_form who", "n": 120, "verdict": "undecided", "could_see_share": None}]
    findings = Findings(
        statements={},
        bottom_line={"small": "there is little."},
        numbers={},
        claims=rows,
        one_mechanism=[null],
        kinds=[{**kinds, "within": within}],
        landmarks=[{"model": "small", **beside}],
        weights={},
        note="Not the published datasets.",
    )
    page = claims_page(findings, CLAIMS.values())
    for statement in (claim.statement for claim in CLAIMS.values()):
        assert statement[1:] in page
    assert "Not the published datasets." in page
    assert page.count("| supported |") == sum(row.verdict == "supported" for row in rows)
    assert "| small | last | −45.0 … −30.0 | −40.0 | 0–0 | yes |" in page
    assert "| small | d | recentred | −20.0 | −22.0 … −18.0 | −5.0 | −7.0 … −3.0 | yes |" in page
    assert page.startswith("# Claims\n\n- **small**: there is little.\n")
    weaker = "+0.250 (+0.125 … +0.375)"
    assert f"| small | d | 812 | two kinds | {weaker} | {weaker} | 8 % |" in page
    assert "| small | d | 120 | undecided, within question_form who | – | – | more than a half |" in page


def test_a_gap_is_beyond_one_mechanism_when_its_whole_interval_is_below_the_simulations():
    place = {
        "model": "m",
        "rule": "honest",
        "labels": "plotted",
        "logits": "measured",
        "anchor": "gap",
        "intervention": "exact_question",
    }
    ends = {"area_low": -22.0, "area_high": -18.0, "area_null": -15.0, "area_null_high": -14.0}
    rows = [
        {**place, "dataset": name, "area": -20.0, **ends, "area_null_low": low}
        for name, low in (("far", -17.0), ("near", -19.0), ("unknown", None))
    ]
    rows[2] |= {"area_null": None}
    series = pl.DataFrame([*rows, rows[0] | {"rule": "flip"}, rows[0] | {"anchor": "question"}])
    names = ("near", "far", "unknown")
    found = beside_null(series, [run(dataset=name) for name in names])
    assert [(row["dataset"], row["beyond"]) for row in found] == [("far", True), ("near", False)]
    blind = [run(dataset=name, reads=False) for name in names]
    assert [row["beyond"] for row in beside_null(series, blind)] == [None, None], "the probe reads nothing"


def test_the_gap_is_judged_as_measured_and_without_what_all_examples_share():
    for logits, verdict in (("measured", "supported"), ("recentred", "supported"), ("residual", "undecided")):
        assert verdicts([run()], logits=logits)[1] == verdict


def test_a_claim_on_which_delta_p_and_the_logit_disagree_says_so():
    """Saturated: P hardly moves, and the logit falls far."""
    flat = run(answer=-2.0)
    far = replace(flat, answer=curve(-1.0, spread=0.01), bounds=1 / 25)
    row = next(row for row in judge_claims({"delta_p": [flat], "delta_logit": [far]}, []) if row.claim == 2)
    assert (row.verdict, row.in_logits["verdict"]) == ("supported", "contradicted")
    findings = Findings({}, {}, {}, claims=[row], one_mechanism=[], kinds=[], landmarks=[], weights={}, note="")
    assert "| **contradicted**: −1." in claims_page(findings, CLAIMS.values())
