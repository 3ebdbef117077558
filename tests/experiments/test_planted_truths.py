"""Verdicts on the experiments' claims tell a truth in which the claim holds from one in which only a confound does."""

from collections import Counter

import pytest

from planted_experiments import CONFOUNDS, HOLDS, verdicts

TRUTHS = [(name, truth) for name, confounds in CONFOUNDS.items() for truth in (HOLDS, *confounds)]
DRAWS = 40


@pytest.mark.parametrize(("experiment", "truth"), TRUTHS)
def test_one_draw_of_a_truth_is_told_from_its_confound(experiment, truth):
    found = set(verdicts(experiment, truth, seed=0).values())
    assert found == {"supported"} if truth == HOLDS else "supported" not in found


@pytest.mark.slow
@pytest.mark.parametrize(("experiment", "truth"), TRUTHS)
def test_many_draws_of_a_truth_are_told_from_its_confound(experiment, truth):
    counts: dict[str | None, Counter] = {}
    for seed in range(DRAWS):
        for rule, verdict in verdicts(experiment, truth, seed).items():
            counts.setdefault(rule, Counter())[verdict] += 1
    for rule, count in counts.items():
        if truth == HOLDS:
            assert count["supported"] >= 0.9 * DRAWS, (rule, count)
        else:
            assert count["supported"] <= 0.05 * DRAWS, (rule, count)
