"""The batched solver finds the optimum that scikit-learn finds, and folds are what they claim."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from anchorscope.files.frames import write_frame
from anchorscope.probe import logistic
from anchorscope.probe.anchor_rules import PROBES
from anchorscope.probe.delta import probes_table
from anchorscope.probe.examples import assign_folds, assign_halves, shuffle_labels
from anchorscope.probe.kept import load_probes, read_probes
from anchorscope.probe.logistic import FittedProbes, fit, fit_labellings, try_strengths
from anchorscope.probe.quality import auc, auc_with_interval, calibration_error, delta_p, flips
from anchorscope.probe.scores import cross_fit_scores, out_of_fold
from anchorscope.probe.strengths import STRENGTHS, choose_strengths, cross_fitting
from rounding import assert_same, of_a_fit, of_a_slope, of_logits, of_probes

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


def all_of(labels: torch.Tensor) -> torch.Tensor:
    """The training set of one probe that sees everyone."""
    return torch.ones(1, len(labels), dtype=torch.bool)


def fit_all(features: torch.Tensor, labels: torch.Tensor, strength: float) -> FittedProbes:
    strengths = torch.full((len(features), 1), strength)
    return fit(features=features, labels=labels, train=all_of(labels), strengths=strengths)


def oracle(features: np.ndarray, labels: np.ndarray, strength: float):
    """scikit-learn's optimum on standardised features, as a function from features to logits."""
    mean, scale = features.mean(0), features.std(0)
    model = LogisticRegression(C=1 / (strength * len(labels)), class_weight="balanced", tol=1e-10, max_iter=10_000).fit(
        (features - mean) / scale, labels
    )
    return lambda rows: model.decision_function((rows - mean) / scale)


def chances(logits: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-logits))


def several(dtype: torch.dtype, shift: float, strength: float, width: int):
    """Features, labels and training sets, and probes that were fitted to all of them at once."""
    features, labels = data(layers=3, examples=160, width=width, shift=shift)
    train = torch.stack([torch.ones(160, dtype=torch.bool), torch.arange(160) % 5 != 0, torch.arange(160) < 90])
    probes = fit(features=features.to(dtype), labels=labels, train=train, strengths=torch.full((3, 3), strength))
    assert probes.converged.all()
    return features.double(), labels, train, probes


SHIFTS = pytest.mark.parametrize("shift", [0.0, 0.7, 6.0], ids=["random", "signal", "nearly separable"])
PENALTIES = pytest.mark.parametrize(
    "strength", [64.0, *(pytest.param(some, marks=pytest.mark.slow) for some in (1.0, 0.0625)), STRENGTHS[-1]]
)
WIDTHS = pytest.mark.parametrize("width", [20, 300], ids=["narrow", "wide"])


@SHIFTS
@PENALTIES
@WIDTHS
def test_probabilities_equal_scikit_learns(shift, strength, width):
    features, labels, train, probes = several(torch.float64, shift, strength, width)
    fitted = torch.sigmoid(probes.logits(features)).numpy()
    expected = np.empty_like(fitted)
    for layer, states in enumerate(features.numpy()):
        for number, inside in enumerate(train.numpy()):
            expected[layer, number] = chances(oracle(states[inside], labels.numpy()[inside], strength)(states))
    # A chance moves by at most a quarter of its logit.
    assert_same(fitted, expected, of_a_fit(features, torch.tensor(strength)) / 4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@SHIFTS
@PENALTIES
@WIDTHS
def test_probes_end_where_the_objective_has_no_slope(shift, strength, width, dtype):
    """As double precision has it, which leaves weakly penalised probes of single precision no room."""
    features, labels, train, probes = several(dtype, shift, strength, width)
    for layer, states in enumerate(features):
        for number, inside in enumerate(train):
            weight, bias = probes.weight[layer, number], float(probes.bias[layer, number])
            objective = (states[inside].numpy(), labels[inside].numpy(), strength, weight.double().numpy())
            rounding = of_a_slope(states[inside], weight, strength)
            assert slope(*objective, bias) < rounding
            steepness = slope(*objective, bias + 1e-3) / 1e-3  # of the slope along the intercept
            assert slope(*objective, bias + 10 * rounding / steepness) > rounding


def slope(states: np.ndarray, labels: np.ndarray, strength: float, weight: np.ndarray, bias: float) -> float:
    """The objective's root mean square slope along the weights of standardised states, and along the intercept."""
    mean, scale = states.mean(0), states.std(0)
    share = np.where(labels == 1, 0.5 / labels.sum(), 0.5 / (1 - labels).sum())
    missed = share * (chances(states @ weight + bias) - labels)
    along = missed @ ((states - mean) / scale) + strength * weight * scale
    return float(np.sqrt(np.mean(np.append(along, missed.sum()) ** 2)))


def test_activations_far_from_zero_are_probed_as_exactly():
    """Residual streams have features whose mean is a hundred times their spread."""
    features, labels = data(layers=2, examples=200, width=60, shift=0.7)
    features[:, :, ::3] += 300.0
    features[:, :, 4] *= 1e4
    probes = fit_all(features, labels, 0.25)
    fitted = torch.sigmoid(probes.logits(features)).numpy()
    expected = [[chances(oracle(states, labels.numpy(), 0.25)(states))] for states in features.double().numpy()]
    # A chance moves by at most a quarter of its logit.
    assert_same(fitted, expected, of_probes(probes, features, labels, all_of(labels), torch.full((2, 1), 0.25)) / 4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [40, 400], ids=["narrow", "wide"])
def test_strengths_tried_one_after_another_end_where_each_probe_alone_does(width, dtype):
    features, labels = data(layers=2, examples=150, width=width, shift=0.7)
    features = features.to(dtype)
    groups, train = ((4.0, 0.25), (0.0625,)), torch.arange(150) % 3 != 0
    by_group = try_strengths(features=features, labels=labels, train=train, groups=groups, tolerance=1e-6)
    logits = torch.cat(list(by_group), dim=1)
    for number, strength in enumerate((4.0, 0.25, 0.0625)):
        strengths, left = torch.full((2, 1), strength), features[:, ~train]
        alone = fit(features=features, labels=labels, train=train[None], strengths=strengths)
        rounding = of_probes(alone, features, labels, train[None], strengths, said_of=left, inner=width > 100)
        assert_same(logits[:, number], alone.logits(left)[:, 0], rounding)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [20, 300], ids=["narrow", "wide"])
def test_probes_that_learn_several_labellings_are_those_that_learn_each_alone(width, dtype):
    """Against scikit-learn, with another strength for each layer."""
    features, labels = data(layers=2, examples=160, width=width, shift=0.7)
    features[:, :, 5] += 300.0
    features = features.to(dtype)
    labellings = torch.stack([labels, labels ^ (torch.arange(160) % 40 == 3), labels.flip(0)])
    train, strengths = torch.arange(160) % 5 != 0, torch.tensor([1.0, 0.0625])
    fitted = fit_labellings(features, labels=labellings, train=train, strengths=strengths)
    assert fitted.converged.all()
    found = torch.sigmoid(fitted.logits(features)).numpy()
    expected = np.empty(found.shape)
    for layer, states in enumerate(features.double().numpy()):
        for number, own in enumerate(labellings.numpy()):
            plain = oracle(states[train], own[train], float(strengths[layer]))
            expected[layer, number] = chances(plain(states))
    learnt = (labellings, train.expand(3, -1), strengths[:, None].expand(-1, 3))
    assert_same(found, expected, of_probes(fitted, features, *learnt, inner=width > 128) / 4)


def test_a_probe_that_has_not_arrived_says_so(monkeypatch):
    features, labels = data(layers=2, examples=150, width=40, shift=0.7)
    monkeypatch.setattr(logistic, "NEWTON_STEPS", 2)
    assert not fit_all(features, labels, 0.01).converged.any()


def test_a_constant_feature_changes_nothing():
    features, labels = data(layers=1, examples=80, width=5, shift=1.0)
    constant = torch.cat([features, torch.full((1, 80, 1), 3.7)], dim=2)
    probes = fit_all(constant, labels, 0.1)
    with_constant = probes.logits(constant)
    assert torch.isfinite(with_constant).all()
    rounding = of_probes(probes, constant, labels, all_of(labels), torch.full((1, 1), 0.1))
    assert_same(with_constant, fit_all(features, labels, 0.1).logits(features), rounding)


def test_a_feature_that_is_constant_in_training_alone_is_not_used():
    features, labels = data(layers=1, examples=80, width=5, shift=1.0)
    spike = torch.zeros(1, 80, 1)
    spike[0, 79] = 1e4
    train = (torch.arange(80) < 79)[None]
    strengths = torch.full((1, 1), 0.1)
    with_spike = torch.cat([features, spike], dim=2)
    probes, without = (
        fit(features=some, labels=labels, train=train, strengths=strengths) for some in (with_spike, features)
    )
    rounding = of_probes(without, features, labels, train, strengths)
    assert_same(probes.logits(with_spike), without.logits(features), rounding)


def test_the_search_gets_along_with_examples_that_are_alike():
    """At the token before the answer, early layers hold nearly the same vector for every example."""
    generator = torch.Generator().manual_seed(3)
    vectors = 20 + torch.randn(4, 500, generator=generator)
    features = vectors[torch.arange(150) % 4][None] + 1e-4 * torch.randn(1, 150, 500, generator=generator)
    features = features.bfloat16().float()
    training_sets = cross_fitting(torch.arange(150) // 2 % 5)
    strengths = choose_strengths(features, (torch.arange(150) % 3 == 0).float(), training_sets)
    assert torch.isin(strengths, torch.tensor(STRENGTHS)).all()


def test_identical_activations_give_the_same_probability_to_all():
    features = torch.full((1, 40, 6), 1.3)
    probes = fit_all(features, torch.arange(40) % 2, 0.1)
    assert probes.converged.all()
    assert not probes.logits(features).any()


def test_every_example_is_scored_only_by_probes_that_never_saw_it():
    """Against scikit-learn, fold by fold, probe by probe, with the chosen strengths."""
    features, labels = data(layers=2, examples=150, width=12, shift=1.0)
    noise = torch.Generator().manual_seed(9)
    states = {run: features + 0.3 * torch.randn(features.shape, generator=noise) for run in RUNS}
    ids = [f"{index:03d}" for index in range(150)]
    folds = torch.from_numpy(assign_folds(ids, groups=ids, labels=labels.numpy(), folds=5, seed=0))
    halves = torch.from_numpy(assign_halves(ids, groups=ids, labels=labels.numpy(), seed=0))
    shuffled = torch.from_numpy(shuffle_labels(ids, labels=labels.bool().numpy(), folds=folds.numpy(), seed=0))
    scores = cross_fit_scores(states, hallucinated=labels.bool(), folds=folds, halves=halves, shuffled=shuffled)
    for (probe, intervention), logits in scores.logits.items():
        for fold in range(5):
            held = (folds == fold).numpy()
            train = ~held if probe.half is None else ~held & (halves == probe.half).numpy()
            clean = states[probe.prompt, "clean"][1].double().numpy()
            expected = oracle(clean[train], labels.numpy()[train], float(scores.strengths[1, fold]))
            tested = states[probe.prompt, intervention][1:, held]
            learnt = (states[probe.prompt, "clean"][1:], labels, torch.from_numpy(train)[None])
            fitted = FittedProbes(*(part[1:, [fold]] for part in vars(scores.probes[probe]).values()))
            rounding = of_probes(fitted, *learnt, strengths=scores.strengths[1:, [fold]], said_of=tested)
            assert_same(logits[1][held], expected(tested[0].double().numpy()), rounding)
    clean = states["first", "clean"][1:]
    control = fit(clean, shuffled.float(), cross_fitting(folds).train, scores.strengths[1:])
    rounding = of_probes(control, clean, shuffled, cross_fitting(folds).train, scores.strengths[1:])
    for fold in range(5):
        held = (folds == fold).numpy()
        seen = clean[0].double().numpy()
        expected = oracle(seen[~held], shuffled.numpy()[~held], float(scores.strengths[1, fold]))
        assert_same(scores.shuffled[1][held], expected(seen[held]), rounding)


def test_the_strength_is_the_one_that_a_plain_search_on_inner_folds_finds():
    features, labels = data(layers=3, examples=120, width=40, shift=0.5)
    folds = torch.arange(120) % 5
    chosen = choose_strengths(features, labels.float(), cross_fitting(folds))
    states, truth, number = features.double().numpy(), labels.numpy(), folds.numpy()
    for layer in range(3):
        for outer in range(5):
            losses = []
            for strength in STRENGTHS:
                total = 0.0
                for inner in ((outer + 1) % 5, (outer - 1) % 5):
                    train, test = ~np.isin(number, (outer, inner)), number == inner
                    logits = oracle(states[layer][train], truth[train], strength)(states[layer][test])
                    loss = np.logaddexp(0, np.where(truth[test] == 1, -1, 1) * logits)
                    total += loss[truth[test] == 1].mean() + loss[truth[test] == 0].mean()
                losses.append(total)
            assert float(chosen[layer, outer]) == STRENGTHS[int(np.argmin(losses))]


def test_the_strength_is_chosen_without_the_held_out_fold():
    features, labels = data(layers=2, examples=120, width=60, shift=0.8)
    folds = torch.arange(120) % 5
    chosen = choose_strengths(features, labels.float(), cross_fitting(folds))
    spoiled = features.clone()
    spoiled[:, folds == 2] = torch.randn(2, 24, 60) * 100
    flipped = torch.where(folds == 2, 1 - labels, labels).float()
    assert torch.equal(choose_strengths(spoiled, flipped, cross_fitting(folds))[:, 2], chosen[:, 2])


def test_a_noisier_layer_gets_a_stronger_penalty():
    features, labels = data(layers=1, examples=200, width=150, shift=0.0)
    signal = features.clone()
    signal[:, :, :40] += 0.9 * labels[None, :, None]
    folds = torch.arange(200) % 5
    strengths = choose_strengths(torch.cat([features, signal]), labels.float(), cross_fitting(folds))
    assert strengths[0].median() > strengths[1].median()


def test_folds_are_stratified_and_never_split_a_subject():
    generator = np.random.default_rng(0)
    groups = [f"s{number}" for number in generator.integers(0, 60, 300)]
    labels = generator.random(300) < 0.3
    ids = [f"{index:03d}" for index in range(300)]
    folds = assign_folds(ids, groups=groups, labels=labels, folds=5, seed=0)
    for name in set(groups):
        assert len({fold for fold, group in zip(folds, groups, strict=True) if group == name}) == 1
    for fold in range(5):
        assert abs((folds == fold).sum() - 60) <= 4
        assert abs(labels[folds == fold].sum() - labels.sum() / 5) <= 4
    shuffled = generator.permutation(300)
    again = assign_folds(
        [ids[i] for i in shuffled], groups=[groups[i] for i in shuffled], labels=labels[shuffled], folds=5, seed=0
    )
    assert (again == folds[shuffled]).all()
    assert (assign_folds(ids, groups=groups, labels=labels, folds=5, seed=1) != folds).any()


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


def test_the_interval_of_the_auc_is_the_one_that_resampling_clusters_gives():
    generator = np.random.default_rng(2)
    subjects = generator.integers(0, 60, 240)
    positive = generator.random(240) < 0.5
    logits = positive * 0.9 + generator.normal(size=60)[subjects] + 0.5 * generator.normal(size=240)
    measured = auc_with_interval(logits[None, None], positive, [f"s{number}" for number in subjects])
    members = [np.flatnonzero(subjects == number) for number in sorted(set(subjects))]
    areas = []
    for _ in range(2000):
        drawn = np.concatenate([members[index] for index in generator.integers(0, len(members), len(members))])
        over = logits[drawn][positive[drawn]][:, None] - logits[drawn][~positive[drawn]]
        areas.append((over > 0).mean() + (over == 0).mean() / 2)
    np.testing.assert_allclose(  # of two thousand draws
        [measured["auc_low"][0], measured["auc_high"][0]], np.quantile(areas, [0.025, 0.975]), atol=0.015
    )


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


def test_probes_that_are_read_back_are_those_that_were_fitted(tmp_path):
    clean, labels = data(layers=3, examples=120, width=30, shift=0.5)
    folds, halves = torch.arange(120) % 5, torch.arange(120) // 5 % 2
    states = {run: clean + number for number, run in enumerate(RUNS)}
    expected = [
        cross_fit_scores(states, labels.bool(), folds.roll(repeat), halves, shuffled=labels.flip(0).bool())
        for repeat in (0, 1)
    ]
    table = probes_table(expected, "resid", "final")
    write_frame(tmp_path / "probes.parquet", table, {})
    for repeat, (found, scores) in enumerate(zip(read_probes(tmp_path / "probes.parquet"), expected, strict=True)):
        assert found.keys() == scores.probes.keys() == set(PROBES)
        for probe, fitted in found.items():
            for one, other in zip(vars(fitted).values(), vars(scores.probes[probe]).values(), strict=True):
                assert torch.equal(one, other)
            kept = load_probes(tmp_path / "probes.parquet")
            np.testing.assert_array_equal(kept.weight[probe.name][repeat], scores.probes[probe].weight)
            np.testing.assert_array_equal(kept.strength[repeat], scores.strengths)
            np.testing.assert_array_equal(kept.inner_loss[repeat], scores.inner_losses)
        for prompt in ("first", "second"):
            mine = {probe: fitted for probe, fitted in found.items() if probe.prompt == prompt}
            seen = {run: vectors for (other, run), vectors in states.items() if other == prompt}
            for (probe, run), logits in out_of_fold(mine, seen, folds.roll(repeat)).items():
                rounding = of_logits(found[probe], seen[run])
                assert_same(logits, scores.logits[probe, run], rounding)
