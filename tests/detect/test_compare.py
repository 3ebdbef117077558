"""The table of methods: each number against an obvious loop, and verdicts by their intervals."""

from itertools import permutations

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import roc_auc_score

from anchorscope.detect.compare import (
    compare_methods,
    contest_of,
    coverage,
    kept,
    overall,
    pathways,
    reliability,
    risks,
    verdict,
)
from anchorscope.detect.methods import METHODS
from anchorscope.probe.quality import calibration_error
from detection_scores import BY_DEFAULT, make_scores

SCORES = make_scores(skill={"probe": 1.0, "mop": 1.5, "pr": 0.2})
CONTEST = contest_of(SCORES, "here")
TABLE = compare_methods(CONTEST)


def rows_of(method: str) -> pl.DataFrame:
    return SCORES.filter(method=method)


def test_there_is_a_row_for_every_method_in_the_order_of_the_names_whatever_the_order_of_the_rows():
    assert TABLE["method"].to_list() == list(BY_DEFAULT)
    assert [name for name in METHODS if name not in TABLE["method"]] == [
        *("answer_mean_logprob", "answer_min_logprob", "answer_sum_logprob"),
        *("answer_mean_entropy", "answer_max_entropy"),
        *("agreement", "cluster_entropy", "lexical_spread"),
    ]
    assert all(METHODS[row["method"]].kind == row["kind"] for row in TABLE.to_dicts())
    mixed = contest_of(SCORES.sample(fraction=1, shuffle=True, seed=3), "here")
    for name in ("scores", "p", "hallucinated", "folds"):
        np.testing.assert_array_equal(getattr(mixed, name), getattr(CONTEST, name))


def test_the_area_is_that_of_scikit_learn_within_folds_and_the_gain_is_over_the_probe():
    folds = {method: rows_of(method).partition_by("fold") for method in BY_DEFAULT}  # of equal size
    expected = {
        method: np.mean([roc_auc_score(fold["hallucinated"], fold["score"]) for fold in some])
        for method, some in folds.items()
    }
    for row in TABLE.to_dicts():
        assert row["auc"] == pytest.approx(expected[row["method"]])
        assert row["auc_low"] < row["auc"] < row["auc_high"]
        if row["method"] == "probe":
            assert (row["gain"], row["gain_low"], row["gain_high"]) == (None, None, None)
        else:
            assert row["gain"] == pytest.approx(row["auc"] - expected["probe"])
            assert row["gain_low"] < row["gain"] < row["gain_high"]


def counted_area(scores: np.ndarray, wrong: np.ndarray) -> float:
    """In how many pairs of a wrong and a right answer the wrong one is above; half for a tie."""
    over = scores[wrong][:, None] - scores[~wrong]
    return float((over > 0).mean() + (over == 0).mean() / 2)


def test_the_gains_interval_is_that_of_resampled_clusters():
    """A bootstrap over clusters: slow, and free of DeLong's algebra. Many examples, so that every fold has enough."""
    random = np.random.default_rng(0)
    many = make_scores(examples=600, skill={"probe": 1.0, "mop": 1.5}, methods=("probe", "mop"))
    rows = {method: many.filter(method=method) for method in ("mop", "probe")}
    scores = {method: some["score"].to_numpy() for method, some in rows.items()}
    names, folds = (rows["probe"][name].to_numpy() for name in ("cluster", "fold"))
    members = {name: np.flatnonzero(names == name) for name in np.unique(names)}
    wrong = rows["probe"]["hallucinated"].to_numpy()

    def ahead(chosen: np.ndarray) -> float:
        areas, pairs = [], []
        for fold in range(5):
            mine = chosen[folds[chosen] == fold]
            areas.append(np.subtract(*(counted_area(some[mine], wrong[mine]) for some in scores.values())))
            pairs.append(wrong[mine].sum() * (~wrong[mine]).sum())
        return float(np.average(areas, weights=pairs))

    resamples = (random.choice(list(members), len(members)) for _ in range(400))
    drawn = [ahead(np.concatenate([members[name] for name in chosen])) for chosen in resamples]
    (row,) = compare_methods(contest_of(many, "here")).filter(method="mop").to_dicts()
    assert (row["gain_high"] - row["gain_low"]) / (2 * 1.96) == pytest.approx(np.std(drawn), rel=0.15)


def test_the_share_of_hallucinated_answers_says_whether_classes_are_balanced():
    assert set(TABLE["n"]) == {120}
    assert set(TABLE["hallucinated_share"]) == {0.5}


def test_risks_are_means_over_all_orders_of_answers_with_equal_scores():
    scores, wrong = np.array([0.3, 0.1, 0.3, 0.3, 0.9]), np.array([True, False, False, True, True])
    orders = [order for order in permutations(range(5)) if all(np.diff(scores[list(order)]) >= 0)]
    assert len(orders) == 6
    expected = np.mean([[wrong[list(order[:count])].mean() for count in range(1, 6)] for order in orders], axis=0)
    np.testing.assert_allclose(risks(scores, wrong), expected)


def test_coverage_risk_and_what_is_derived_from_them_are_those_of_a_loop():
    assert [int(kept(share, 100)) for share in (0.01, 0.07, 0.29, 0.5, 1.0)] == [1, 7, 29, 50, 100]
    assert int(kept(0.5, 7)) == 4
    curve = coverage(CONTEST)
    for method in ("mop_honest", "answer_words"):  # without ties
        rows = rows_of(method).sort("score")
        wrong = rows["hallucinated"].to_list()
        running = [sum(wrong[:count]) / count for count in range(1, len(wrong) + 1)]
        (row,) = TABLE.filter(method=method).to_dicts()
        assert row["aurc"] == pytest.approx(sum(running) / len(running))
        assert row["right_at_50"] == pytest.approx(1 - running[60 - 1])
        assert row["right_at_80"] == pytest.approx(1 - running[96 - 1])
        mine = curve.filter(method=method)
        assert mine["coverage"].to_list() == pytest.approx([percent / 100 for percent in range(1, 101)])
        counts = [-(-percent * 120 // 100) for percent in range(1, 101)]
        assert mine["kept"].to_list() == counts
        assert mine["risk"].to_list() == pytest.approx([running[count - 1] for count in counts])


def test_reliability_is_that_of_a_loop_and_calibration_that_of_the_probes():
    bins = reliability(CONTEST)
    for method in ("probe", "mean_entropy"):
        rows = rows_of(method)
        expected = {}
        for p, wrong in rows.select("p", "hallucinated").iter_rows():
            expected.setdefault(min(int(p * 10), 9), []).append((p, wrong))
        found = {row["bin"]: row for row in bins.filter(method=method).to_dicts()}
        assert list(found) == sorted(expected)
        for place, some in expected.items():
            assert found[place]["n"] == len(some)
            assert found[place]["p"] == pytest.approx(sum(p for p, _ in some) / len(some))
            assert found[place]["hallucinated_share"] == pytest.approx(sum(wrong for _, wrong in some) / len(some))
        (row,) = TABLE.filter(method=method).to_dicts()
        error = calibration_error(rows["score"].to_numpy(), rows["hallucinated"].to_numpy())  # P is its sigmoid
        assert row["calibration_error"] == pytest.approx(float(error))


def test_a_probability_of_one_is_in_the_last_bin():
    sure = contest_of(SCORES.with_columns(p=pl.when("hallucinated").then(1.0).otherwise(0.0)), "here")
    assert set(reliability(sure)["bin"]) == {0, 9}
    assert set(compare_methods(sure)["calibration_error"]) == {0.0}


def test_pathways_are_compared_with_their_rivals_and_judged_by_the_interval():
    table = pathways(CONTEST)
    assert table.select("method", "against").rows() == [
        (method, rival) for method in METHODS for rival in METHODS[method].rivals
    ]
    auc = dict(TABLE.select("method", "auc").iter_rows())
    for row in table.to_dicts():
        assert row["gain"] == pytest.approx(auc[row["method"]] - auc[row["against"]])
    helps = {name: set(some["helps"]) for (name,), some in table.group_by("method")}
    assert helps["mop"] == {"yes"}, "its skill is three times that of its rivals"
    assert table.filter(method="pr", against="probe")["helps"].item() == "no"
    assert helps["mop_honest"] == {"undecided"}, "it is as good as its rivals"


@pytest.mark.parametrize(
    ("ends", "expected"), [((0.01, 0.2), "yes"), ((-0.2, -0.01), "no"), ((-0.1, 0.1), "undecided")]
)
def test_a_verdict_is_that_of_the_interval(ends, expected):
    assert verdict(*ends) == expected


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [(["yes", "yes"], "yes"), (["yes", "undecided"], "undecided"), (["yes", "no", "undecided"], "no")],
)
def test_pathways_help_only_where_every_comparison_says_so(verdicts, expected):
    assert overall(verdicts) == expected


def test_methods_with_other_examples_are_refused():
    short = SCORES.filter(~((pl.col("method") == "pr") & (pl.col("id") == "0003")))
    with pytest.raises(ValueError, match="tiny on one: pr has scores of other examples than answer_length"):
        contest_of(short, "tiny on one")
