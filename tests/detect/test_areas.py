"""Areas within folds and their intervals, held to plain loops, to resampling and to scores that know nothing."""

import numpy as np
import pytest

from anchorscope.detect.areas import areas, gains
from anchorscope.probe.quality import auc_with_interval
from rounding import assert_same, of_sums


def draw(seed: int, shift: float, count: int = 240) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, labels and folds; the scores of each fold have a level of their own."""
    random = np.random.default_rng(seed)
    hallucinated, folds = random.random(count) < 0.5, np.arange(count) % 5
    return shift * hallucinated + random.normal(size=count) + 10 * folds, hallucinated, folds


def slow_area(scores: np.ndarray, hallucinated: np.ndarray, folds: np.ndarray) -> float:
    won = [
        float(scores[one] > scores[other]) + 0.5 * float(scores[one] == scores[other])
        for one in np.flatnonzero(hallucinated)
        for other in np.flatnonzero(~hallucinated)
        if folds[one] == folds[other]
    ]
    return float(np.mean(won))


def test_only_examples_of_one_fold_are_compared():
    scores, hallucinated, folds = draw(0, shift=1.0)
    scores = np.round(10 * scores)  # ties
    names = [f"q{number}" for number in range(len(scores))]
    found = areas(scores[None], hallucinated, names, folds)
    assert found["auc"][0] == pytest.approx(slow_area(scores, hallucinated, folds))
    other = gains(scores, np.stack([scores, -scores]), hallucinated, names, folds)
    assert other["gain"] == pytest.approx([0, 2 * found["auc"][0] - 1])
    assert [other["gain_low"][0], other["gain_high"][0]] == pytest.approx([0, 0])


def test_with_one_fold_they_are_delongs():
    scores, hallucinated, _ = draw(1, shift=0.3, count=2000)
    names = [f"s{number // 3}" for number in range(len(scores))]
    expected = auc_with_interval(scores[None, None], hallucinated, names)
    found = areas(scores[None], hallucinated, names, np.zeros(len(scores)))
    assert_same(found["auc"], expected["auc"], of_sums(len(scores), largest=1.0))
    # A class of n varies by n / (n - 1) more than DeLong says, whose root moves an end by half of that at most twice.
    fewer = min(hallucinated.sum(), (~hallucinated).sum()) - 1
    for name in ("auc_low", "auc_high"):
        assert_same(found[name], expected[name], (expected["auc_high"] - expected["auc"])[0] / fewer)


@pytest.mark.parametrize("sign", [1, -1], ids=["nearly perfect", "nearly reversed"])
def test_no_interval_ends_beyond_zero_or_one(sign):
    """DeLong's variance by loops over pairs: that of each class's shares of wins, by how many it has."""
    hallucinated = np.array([True] * 6 + [False] * 6)
    scores = sign * np.array([6.0, 5, 4, 3, 2, 0.5, 1, 0, -1, -2, -3, -4])
    wrong, right = scores[hallucinated], scores[~hallucinated]
    of_wrong, of_right = [np.mean(one > right) for one in wrong], [np.mean(wrong > other) for other in right]
    area, error = np.mean(of_wrong), np.sqrt(np.var(of_wrong, ddof=1) / 6 + np.var(of_right, ddof=1) / 6)
    low, high = area - 1.96 * error, area + 1.96 * error
    assert low < 0 or high > 1
    names = [f"q{number}" for number in range(12)]
    within = areas(scores[None], hallucinated, names, np.zeros(12))
    delong = auc_with_interval(scores[None, None], hallucinated, names)
    for found in (within, delong):  # shares of wins, and their mean
        assert_same(found["auc"], [area], of_sums(6 + 6, largest=1.0))
    outer, inner = ("auc_high", "auc_low") if sign > 0 else ("auc_low", "auc_high")
    for found, wide in ((within, 0.01), (delong, 0.03)):  # which take few examples into account in their own ways
        assert found[outer][0] == (1 if sign > 0 else 0)
        assert found[inner][0] == pytest.approx(low if sign > 0 else high, abs=wide)


def test_intervals_are_those_of_resampled_clusters_where_there_is_a_signal():
    """Resampled within folds, as examples were drawn."""
    random = np.random.default_rng(2)
    subjects, folds = np.arange(400) // 2, np.arange(400) // 80
    hallucinated = random.random(400) < 0.5
    common = random.normal(size=200)[subjects]
    better, worse = (hallucinated * shift + common + random.normal(size=400) for shift in (1.6, 0.8))
    names = [f"s{number}" for number in subjects]
    members = [[np.flatnonzero(subjects == one) for one in np.unique(subjects[folds == fold])] for fold in range(5)]
    drawn = []
    for _ in range(400):
        rows = np.concatenate([some[index] for some in members for index in random.integers(0, 40, 40)])
        both = areas(np.stack([better, worse])[:, rows], hallucinated[rows], names, folds[rows])["auc"]
        drawn.append([both[0], both[0] - both[1]])
    ends = np.quantile(drawn, [0.025, 0.975], axis=0)
    found, gain = (
        areas(better[None], hallucinated, names, folds),
        gains(better, worse[None], hallucinated, names, folds),
    )
    np.testing.assert_allclose([found["auc_low"][0], found["auc_high"][0]], ends[:, 0], atol=0.015)
    np.testing.assert_allclose([gain["gain_low"][0], gain["gain_high"][0]], ends[:, 1], atol=0.015)


def learnt(states: np.ndarray, hallucinated: np.ndarray, folds: np.ndarray) -> np.ndarray:
    """Scores along the difference of the other folds' means."""
    scores = np.empty(len(states))
    for fold in np.unique(folds):
        train = folds != fold
        direction = states[train & hallucinated].mean(0) - states[train & ~hallucinated].mean(0)
        scores[folds == fold] = states[folds == fold] @ direction
    return scores


@pytest.mark.parametrize(("shift", "least"), [(0.0, 0.93), (0.5, 0.92), (1.0, 0.93)], ids=["nothing", "little", "much"])
def test_nineteen_of_twenty_intervals_hold_the_truth(shift, least):
    """Without a signal, and with one: the area in the long run of what is learnt from as many examples."""
    random, found, half = np.random.default_rng(3), [], []
    folds, hallucinated = np.arange(200) % 5, np.arange(200) % 2 == 0
    names = [f"q{number}" for number in range(200)]
    for _ in range(400):
        states = random.normal(size=(200, 8))
        states[:, 0] += shift * hallucinated
        measured = areas(learnt(states, hallucinated, folds)[None], hallucinated, names, folds)
        found.append([measured[name][0] for name in ("auc_low", "auc", "auc_high")])
        half.append(measured["auc"][0])
    low, area, high = np.array(found).T
    truth = 0.5 if shift == 0 else np.mean(half)
    assert np.mean((low <= truth) & (truth <= high)) >= least
    assert np.mean(area) == pytest.approx(truth, abs=0.01), "not below one half where nothing is known"
