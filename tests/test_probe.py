"""The batched solver finds the optimum that scikit-learn finds, and folds are what they claim."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from anchorscope.anchors import auc, calibration_error, delta_p, flips
from anchorscope.crossfit import PROBES, choose_strengths, score
from anchorscope.folds import assign_folds, assign_halves
from anchorscope.probe import fit, standardise

RUNS = [("first", "clean"), ("first", "exact_question"), ("first", "random_question"), ("second", "clean")]
RUNS.append(("second", "exact_question"))


def data(layers: int, examples: int, width: int, shift: float, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.rand(examples, generator=generator) < 0.4).long()
    features = torch.randn(layers, examples, width, generator=generator)
    features[:, :, :3] += shift * labels[None, :, None]
    features[:, :, 1] *= 40  # features of very different size
    features[:, :, 2] += 7
    return features, labels


@pytest.mark.parametrize("shift", [0.0, 0.7, 6.0], ids=["random", "signal", "nearly separable"])
@pytest.mark.parametrize("strength", [10.0, 0.3, 0.01])
@pytest.mark.parametrize("width", [20, 300], ids=["narrow", "wide"])
def test_probabilities_equal_scikit_learns(shift, strength, width):
    features, labels = data(3, 160, width, shift)
    probes = fit(features, labels, torch.full((3,), strength, dtype=torch.float64))
    assert probes.converged.all()
    found = torch.sigmoid(probes.logits(features))
    for layer in range(3):
        scaled = standardise(features[layer : layer + 1].double())[0][0].numpy()
        oracle = LogisticRegression(
            C=1 / (strength * len(labels)), class_weight="balanced", tol=1e-10, max_iter=10_000
        ).fit(scaled, labels.numpy())
        np.testing.assert_allclose(found[layer], oracle.predict_proba(scaled)[:, 1], atol=1e-4)


def test_a_constant_feature_changes_nothing():
    features, labels = data(1, 80, 5, 1.0)
    constant = torch.cat([features, torch.full((1, 80, 1), 3.7)], dim=2)
    strength = torch.tensor([0.1], dtype=torch.float64)
    with_constant = fit(constant, labels, strength).logits(constant)
    assert torch.isfinite(with_constant).all()
    torch.testing.assert_close(with_constant, fit(features, labels, strength).logits(features))


def test_identical_activations_give_the_same_probability_to_all():
    features = torch.ones(1, 40, 6)
    labels = torch.arange(40) % 2
    logits = fit(features, labels, torch.tensor([0.1], dtype=torch.float64)).logits(features)
    torch.testing.assert_close(logits, torch.zeros_like(logits))


def test_every_example_is_scored_only_by_probes_that_never_saw_it():
    """Against scikit-learn, fold by fold, probe by probe, with the chosen strengths."""
    features, labels = data(2, 150, 12, 1.0)
    noise = torch.Generator().manual_seed(9)
    states = {run: features + 0.3 * torch.randn(features.shape, generator=noise) for run in RUNS}
    ids = [f"{index:03d}" for index in range(150)]
    folds = torch.from_numpy(assign_folds(ids, ids, labels.numpy(), 5, 0))
    halves = torch.from_numpy(assign_halves(ids, ids, labels.numpy(), 0))
    scores = score(states, labels.bool(), folds, halves)
    for (probe, prompt, intervention), logits in scores.logits.items():
        half, trained_on = PROBES[probe]
        assert prompt == trained_on
        for fold in range(5):
            held = (folds == fold).numpy()
            train = ~held if half is None else ~held & (halves == half).numpy()
            clean = states[prompt, "clean"][1].double().numpy()
            mean, scale = clean[train].mean(0), clean[train].std(0)
            strength = float(scores.strengths[1, fold])
            oracle = LogisticRegression(
                C=1 / (strength * train.sum()), class_weight="balanced", tol=1e-10, max_iter=10_000
            ).fit((clean[train] - mean) / scale, labels.numpy()[train])
            tested = (states[prompt, intervention][1].double().numpy()[held] - mean) / scale
            np.testing.assert_allclose(logits[1][held], oracle.decision_function(tested), atol=1e-3)


def test_the_strength_is_chosen_without_the_held_out_fold():
    features, labels = data(2, 120, 60, 0.8)
    folds = torch.arange(120) % 5
    chosen = choose_strengths(features, labels.double(), folds)
    spoiled = features.clone()
    spoiled[:, folds == 2] = torch.randn(2, 24, 60) * 100
    flipped = torch.where(folds == 2, 1 - labels, labels).double()
    assert torch.equal(choose_strengths(spoiled, flipped, folds)[:, 2], chosen[:, 2])


def test_a_noisier_layer_gets_a_stronger_penalty():
    features, labels = data(1, 200, 150, 0.0)
    signal = features.clone()
    signal[:, :, :40] += 0.9 * labels[None, :, None]
    folds = torch.arange(200) % 5
    strengths = choose_strengths(torch.cat([features, signal]), labels.double(), folds)
    assert strengths[0].median() > strengths[1].median()


def test_folds_are_stratified_and_never_split_a_subject():
    generator = np.random.default_rng(0)
    groups = [f"s{number}" for number in generator.integers(0, 60, 300)]
    labels = generator.random(300) < 0.3
    ids = [f"{index:03d}" for index in range(300)]
    folds = assign_folds(ids, groups, labels, 5, 0)
    for name in set(groups):
        assert len({fold for fold, group in zip(folds, groups, strict=True) if group == name}) == 1
    for fold in range(5):
        assert abs((folds == fold).sum() - 60) <= 4
        assert abs(labels[folds == fold].sum() - labels.sum() / 5) <= 4
    shuffled = generator.permutation(300)
    again = assign_folds([ids[i] for i in shuffled], [groups[i] for i in shuffled], labels[shuffled], 5, 0)
    assert (again == folds[shuffled]).all()
    assert (assign_folds(ids, groups, labels, 5, 1) != folds).any()


def test_auc_and_calibration_error_agree_with_their_definitions():
    generator = np.random.default_rng(1)
    positive = generator.random(200) < 0.4
    logits = np.round(generator.normal(positive * 1.0, 1.0, (3, 200)), 1)  # with ties
    for row, area in zip(logits, auc(logits, positive), strict=True):
        assert area == pytest.approx(roc_auc_score(positive, row))
    chance = 1 / (1 + np.exp(-logits))
    for row, error in zip(chance, calibration_error(logits, positive), strict=True):
        expected = 0.0
        for low in np.arange(0, 1, 0.1):
            inside = (row >= low) & (row < low + 0.1)
            if inside.any():
                expected += inside.mean() * abs(row[inside].mean() - positive[inside].mean())
        assert error == pytest.approx(expected, abs=1e-9)


def test_delta_p_is_the_change_of_confidence_in_the_clean_verdict():
    clean = np.array([2.0, -2.0, 2.0, -0.5])
    changed = np.array([-2.0, -2.0, 9.0, 0.5])
    one = 1 / (1 + np.exp(-2.0))
    expected = [
        100 * ((1 - one) - one),  # said hallucinated, now says right
        0.0,
        100 * (1 / (1 + np.exp(-9.0)) - one),  # more certain
        100 * (1 / (1 + np.exp(0.5)) - 1 / (1 + np.exp(-0.5))),
    ]
    np.testing.assert_allclose(delta_p(clean, changed), expected)
    assert flips(clean, changed).tolist() == [True, False, False, True]
    extreme = delta_p(np.array([50.0, 1e-9]), np.array([-50.0, 50.0]))
    np.testing.assert_allclose(extreme, [-100, 50])
