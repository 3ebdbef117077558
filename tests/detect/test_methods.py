"""Every method, held to an obvious implementation; and none of its scores knows the label that it is compared with."""

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
import torch

from anchorscope.detect.fits import (
    BATCH,
    MEMBERS,
    Fits,
    Told,
    batches,
    every_method,
    first_layers,
    permuted,
    read_network,
    resampled,
)
from anchorscope.detect.gates import FEWEST_LEARNT, find_groups, gates_table, read_gate
from anchorscope.detect.methods import METHODS
from anchorscope.detect.reading import Reading
from anchorscope.detect.reweighting import AMOUNTS, GATES
from anchorscope.detect.scoring import scores_table, training_sets_of
from anchorscope.extract.axes import EXACT
from anchorscope.probe.logistic import Marks, fit
from anchorscope.probe.readers import presence, read_features
from anchorscope.probe.scores import cross_fit_scores
from anchorscope.probe.strengths import STRENGTHS, cross_fitting, fit_training_sets, own_fold, whole
from plain_probe import PlainProbe
from planted_detection import TWO_DIRECTIONS, World, probes_of_layers
from rounding import assert_same, of_a_fit, of_probes, of_sums

LAYER = 1  # the middle of three


@pytest.fixture(scope="module")
def world() -> World:
    return World(TWO_DIRECTIONS, seed=5, examples=160)


@pytest.fixture(scope="module")
def reading(world) -> Reading:
    return world.reading()


@pytest.fixture(scope="module")
def said(world, reading) -> dict[str, Told]:
    return said_of(world, reading)


def said_of(world: World, reading: Reading) -> dict[str, Told]:
    probes, training_sets = probes_of_layers(world, reading), training_sets_of(reading)
    return every_method(Fits(reading, probes, training_sets, reading.folds, seed=0))


def sigmoid(logits: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-logits))


def loss(logits: np.ndarray, labels: np.ndarray) -> float:
    """Log loss, classes weighted equally."""
    wrong, right = logits[labels == 1], logits[labels == 0]
    return float(np.log1p(np.exp(-wrong)).mean() / 2 + np.log1p(np.exp(right)).mean() / 2)


def beside(fold: int) -> tuple[int, int]:
    return (fold + 1) % 5, (fold - 1) % 5


def chosen(features: np.ndarray, labels: np.ndarray, folds: np.ndarray, fold: int) -> tuple[float, float]:
    """The strength with the least loss on the two folds beside an outer fold, and that loss."""
    losses = []
    for strength in STRENGTHS:
        total = 0.0
        for held in beside(fold):
            rows = np.flatnonzero((folds != fold) & (folds != held))
            total += loss(PlainProbe(features, labels, strength, rows)(features[folds == held]), labels[folds == held])
        losses.append(total)
    return STRENGTHS[int(np.argmin(losses))], min(losses)


def inner(features: np.ndarray, labels: np.ndarray, folds: np.ndarray, fold: int, strength: float, cut=None):
    """Logits of every training example of an outer fold by a probe that saw neither it nor its fold; 0 for others.

    And their rounding.
    """
    found, rounding = np.zeros(len(labels)), 0.0
    for held in set(range(5)) - {fold}:
        rows = np.flatnonzero((folds != fold) & (folds != held))
        plain = PlainProbe(features, labels, strength, rows)
        found[folds == held] = plain((features if cut is None else cut)[folds == held])
        rounding = max(rounding, plain.rounding())
    return found, rounding


def expert(features, labels, rows, everyone, strength):
    counts = np.bincount(labels[rows].astype(int), minlength=2)
    return PlainProbe(features, labels, strength, rows if counts.min() >= FEWEST_LEARNT else everyone)


def slow_mixtures(world: World, reading: Reading, fold: int) -> dict[str, tuple[np.ndarray, float]]:
    """P of one fold's examples by Mixture of Probes and what it is compared with, one probe at a time; and roundings.

    The gate that learns from logits gets those that the library found, once they are known to be right.
    """
    clean = reading.states["first", "clean"].numpy()
    labels, folds = reading.hallucinated.astype(int), reading.folds
    strength, _ = chosen(clean, labels, folds, fold)
    train, test = np.flatnonzero(folds != fold), folds == fold
    found, gates, experts = {}, {}, {}
    for gate, prompt in zip(GATES, ("first", "second"), strict=True):
        own, cut = (reading.states[prompt, name].numpy() for name in ("clean", EXACT))
        (before, rounding), (after, _) = (inner(own, labels, folds, fold, strength, some) for some in (own, cut))
        group = ((before >= 0) != (after >= 0)).astype(int)
        how, _ = chosen(clean, group, folds, fold)
        gates[gate] = says(PlainProbe(clean, group, how, train), clean[test])
        parts = [np.flatnonzero((folds != fold) & (group == side)) for side in (1, 0)]
        experts[gate] = [says(expert(clean, labels, part, train, strength), clean[test]) for part in parts]
        if gate == "published":
            plain, probes = PlainProbe(clean, labels, strength, train), probes_of_layers(world, reading)
            _, known = find_groups(reading.states, reading.labels, training_sets_of(reading), probes.strengths[LAYER])
            logit = np.where(test, probes.logits[LAYER, fold], known[fold])
            assert_same(logit, np.where(test, plain(clean), before), max(rounding, plain.rounding()))
            told = np.stack([logit, np.abs(logit)], axis=1)
            how, _ = chosen(told, group, folds, fold)
            gates["logit"] = says(PlainProbe(told, group, how, train), told[test])
    halves = [np.flatnonzero((folds != fold) & (reading.halves == half)) for half in (0, 1)]
    experts["halves"] = [says(PlainProbe(clean, labels, strength, half), clean[test]) for half in halves]
    for name, gate, pair in [
        ("mop", "published", "published"),
        ("mop_honest", "honest", "honest"),
        ("mop_logit_gate", "logit", "published"),
        ("mop_random_experts", "published", "halves"),
    ]:
        (g, own), (question, of_question), (answer, of_answer) = gates[gate], *experts[pair]
        found[name] = g * question + (1 - g) * answer, own + max(of_question, of_answer)
    members = []
    for member in range(MEMBERS):
        counts = resampled(folds != fold, labels, reading.clusters, np.random.default_rng([0, member]))
        members.append(
            says(PlainProbe(clean, labels, strength, np.repeat(np.arange(len(labels)), counts)), clean[test])
        )
    chances, roundings = zip(*members, strict=True)
    return found | {"ensemble": (np.mean(chances, axis=0), max(roundings))}


def says(plain: PlainProbe, features: np.ndarray) -> tuple[np.ndarray, float]:
    """Chances, and their rounding."""
    return sigmoid(plain(features)), plain.rounding() / 4


def test_mixture_of_probes_and_its_ablations_are_those_of_one_probe_at_a_time(world, reading, said):
    for name, (expected, rounding) in slow_mixtures(world, reading, fold=3).items():
        assert_same(said[name].scores[3, reading.folds == 3], expected, rounding)


def slow_probes(reading: Reading, features: np.ndarray, fold: int) -> tuple[np.ndarray, float, float]:
    """Logits of a fold, the least loss of a strength, and the rounding of logits."""
    labels, folds = reading.hallucinated.astype(int), reading.folds
    strength, least = chosen(features, labels, folds, fold)
    plain = PlainProbe(features, labels, strength, np.flatnonzero(folds != fold))
    return plain(features[folds == fold]), least, plain.rounding()


def close(said: Told, fold: int, folds: np.ndarray, logits: np.ndarray, rounding: float) -> None:
    """Whether probabilities are the same; `rounding` is of logits."""
    assert_same(said.chances[fold, folds == fold], sigmoid(logits), rounding / 4)
    assert_same(said.scores[fold, folds == fold].sigmoid(), sigmoid(logits), rounding / 4)


@pytest.mark.parametrize("fold", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_methods_of_one_and_of_many_layers_are_those_of_one_probe_at_a_time(world, reading, said, fold):
    folds, labels = reading.folds, reading.hallucinated.astype(int)
    layers = [slow_probes(reading, states.numpy(), fold) for states in world.states]
    logits, losses, roundings = map(np.array, zip(*layers, strict=True))
    close(said["probe"], fold, folds, logits[LAYER], roundings[LAYER])
    close(said["best_layer"], fold, folds, logits[losses.argmin()], roundings.max())
    close(said["mean_logit"], fold, folds, logits.mean(0), roundings.max())
    question, _, rounding = slow_probes(reading, reading.reweighted.question_last.numpy(), fold)
    close(said["question_probe"], fold, folds, question, rounding)
    probes = probes_of_layers(world, reading)  # which are what is stacked, once they are known to be right
    seen = np.where(folds == fold, probes.logits[:, fold], probes.inner[:, fold]).T
    for layer, states in enumerate(world.states.numpy()):
        strength, _ = chosen(states, labels, folds, fold)
        expected, rounding = inner(states, labels, folds, fold, strength)
        expected[folds == fold] = logits[layer]
        assert_same(seen[:, layer], expected, max(rounding, roundings[layer]))
    stacked, _, rounding = slow_probes(reading, seen, fold)
    close(said["stacked"], fold, folds, stacked, rounding)


def test_pathway_reweighting_takes_the_amount_and_the_strength_of_the_least_inner_loss(reading, said):
    for method, gate, fold in (("pr", "published", 1), ("pr_honest", "honest", 4)):
        clean = reading.states["first", "clean"]
        states = [reading.reweighted.states[gate, amount] if amount else clean for amount in AMOUNTS]
        tried = [slow_probes(reading, some.numpy(), fold) for some in states]
        logits, _, rounding = min(tried, key=lambda one: one[1])
        close(said[method], fold, reading.folds, logits, rounding)


def test_readers_of_text_are_those_of_the_text_table(world, reading, said):
    question, answer = presence(reading.questions), presence(reading.answers)
    for name, features in {
        "question_words": question,
        "answer_words": answer,
        "both_words": question.beside(answer),
        "answer_length": torch.from_numpy(reading.lengths[None, :, None]),
    }.items():
        expected = read_features(features, world.examples)
        found = own_fold(said[name].scores, torch.from_numpy(reading.folds)).numpy()
        seen = features.by_example.to_dense()[None] if isinstance(features, Marks) else features
        labels = reading.labels.double()
        training_sets = training_sets_of(reading)
        fitted = fit_training_sets(seen, labels, training_sets)
        rounding = of_probes(fitted.probes, seen, labels, training_sets.train, fitted.strengths)
        assert_same(sigmoid(found), sigmoid(expected), rounding / 4)


def test_the_mean_difference_and_its_probability_are_those_of_plain_loops(reading, said):
    states, wrong, folds = reading.states["first", "clean"].double().numpy(), reading.hallucinated, reading.folds

    def along(train: np.ndarray, rows: np.ndarray) -> np.ndarray:
        means = [states[train & (wrong == label)].mean(0) for label in (True, False)]
        return np.array([(row - sum(means) / 2) @ (means[0] - means[1]) for row in states[rows]])

    train, test = folds != 2, folds == 2
    known = np.zeros(len(folds))
    for held in (0, 1, 3, 4):
        known[folds == held] = along(train & (folds != held), folds == held)
    # Means over examples, and sums over what a state is wide of two means and a state.
    rounding = of_sums(len(folds) + 2 * states.shape[1], states.shape[1] * float(np.abs(states).max()) ** 2)
    assert_same(said["mean_difference"].scores[2, test], along(train, test), rounding)
    regression = PlainProbe(known[:, None], wrong.astype(int), STRENGTHS[-1], np.flatnonzero(train))
    expected = sigmoid(regression(along(train, test)[:, None]))
    assert_same(said["mean_difference"].chances[2, test], expected, regression.rounding(torch.float64) / 4)


def test_probabilities_of_what_learns_nothing_are_fitted_to_the_training_folds(reading, said):
    values, train, test = reading.outputs["mean_entropy"][:, None], reading.folds != 1, reading.folds == 1
    regression = PlainProbe(values, reading.hallucinated.astype(int), STRENGTHS[-1], np.flatnonzero(train))
    expected = sigmoid(regression(values[test]))
    assert_same(said["mean_entropy"].chances[1, test], expected, regression.rounding(torch.float64) / 4)


@pytest.mark.usefixtures("double")
def test_networks_trained_together_are_those_that_torchs_own_layers_learn_alone():
    """Training sets of different size, classes of different size, and a feature that never varies.

    Adam divides slopes by their own size, so in single precision rounding turns the steps of parameters that hardly
    matter. In double precision it moves a network less than weights that begin off by the rounding of all that training
    adds up one after the other: forwards and backwards, over every layer's inputs and the batch.
    """
    random = torch.Generator().manual_seed(1)
    states, labels = torch.randn(90, 6, generator=random), (torch.rand(90, generator=random) < 0.3).double()
    states[:, 4] = 2.0
    train = torch.stack([torch.arange(90) < 71, torch.arange(90) % 3 > 0])
    steps, sizes = list(batches(train, seed=3)), (6, 256, 128, 64, 1)

    def alone(number: int, inside: torch.Tensor, off: float = 0.0) -> torch.Tensor:
        modules = []
        for (inputs, outputs), parts in zip(pairwise(sizes), first_layers(2, 6, seed=3), strict=True):
            weights, biases = (part * (1 + off * torch.randn(part.shape, generator=random).sign()) for part in parts)
            layer = torch.nn.Linear(inputs, outputs)
            layer.load_state_dict({"weight": weights[number].T, "bias": biases[number, 0]})
            modules += [layer, torch.nn.ReLU()]
        network = torch.nn.Sequential(*modules[:-1])
        spread = states[inside].std(0, correction=0)
        seen = (states - states[inside].mean(0)) / torch.where(spread > 0, spread, torch.inf)
        share = labels[inside].mean()
        weights = torch.where(labels == 1, 0.5 / share, 0.5 / (1 - share))
        adam = torch.optim.Adam(network.parameters(), lr=1e-3)
        for together in steps:
            batch = together[number][together[number] >= 0]
            adam.zero_grad()
            torch.nn.functional.binary_cross_entropy_with_logits(
                network(seen[batch])[:, 0], labels[batch], weight=weights[batch]
            ).backward()
            adam.step()
        return network(seen)[:, 0].detach()

    found, off = read_network(states, labels, train, seed=3), of_sums(2 * len(steps) * (sum(sizes) + BATCH), 1.0)
    for number, inside in enumerate(train):
        expected = alone(number, inside)
        assert_same(found[number], expected, float((alone(number, inside, off) - expected).abs().max()))


def test_a_network_begins_with_small_weights_and_sees_every_example_once_an_epoch():
    for (weights, biases), inputs in zip(first_layers(2, 100, seed=0), (100, 256, 128, 64), strict=True):
        assert 0.9 * inputs**-0.5 < weights.abs().max() <= inputs**-0.5
        assert biases.abs().max() <= inputs**-0.5
    train = torch.stack([torch.arange(90) != 4, torch.arange(90) < 70])
    seen = list(batches(train, seed=0))
    assert len(seen) == 5 * 3, "89 examples are three batches of 32 or fewer"
    for number, members in enumerate(train):
        for epoch in range(5):
            rows = torch.cat([batch[number] for batch in seen[3 * epoch : 3 * epoch + 3]])
            assert sorted(rows[rows >= 0].tolist()) == members.nonzero()[:, 0].tolist()
    assert all(batch.shape[1] <= 32 for batch in seen)
    assert not torch.equal(seen[0], seen[3])


def test_the_probe_is_that_of_the_main_run(world, reading, said):
    runs = dict.fromkeys(product(("first", "second"), ("clean", EXACT)), world.states)
    split = world.examples.splits[0]
    main = cross_fit_scores(
        runs,
        hallucinated=torch.from_numpy(reading.hallucinated),
        folds=torch.from_numpy(split.folds),
        halves=torch.from_numpy(split.halves),
        shuffled=torch.from_numpy(split.shuffled),
    )
    (full,) = [probe for probe in main.probes if probe.name == "full"]
    found = own_fold(said["probe"].scores, torch.from_numpy(reading.folds)).numpy()
    learnt = (world.states, reading.labels, training_sets_of(reading).train, main.strengths)
    assert_same(found, main.logits[full, "clean"][LAYER], of_probes(main.probes[full], *learnt))


def test_one_inner_probe_serves_the_two_folds_that_it_leaves_out(reading):
    folds = torch.from_numpy(reading.folds)
    splits = {frozenset(split.validated): split for split in cross_fitting(folds).splits()}
    assert set(splits) == {frozenset((fold, (fold + 1) % 5)) for fold in range(5)}
    for (one, other), split in splits.items():
        assert torch.equal(split.train, (folds != one) & (folds != other))
        assert torch.equal(split.validated[one], folds == other)
        assert torch.equal(split.validated[other], folds == one)


@pytest.mark.parametrize("fold", [0, pytest.param(4, marks=pytest.mark.slow)])
def test_no_score_knows_the_labels_of_its_own_fold(world, reading, said, fold):
    """No method does; and the labels of other folds do matter to all that learn.

    Fits of several training sets are computed together, and how many of them go on changes the shapes of what is
    computed. A step of a fit adds up examples and features, and forgets the rounding of the steps before it.
    """
    terms = len(reading.ids) + world.states.shape[-1]
    # Not those of a whole fold: a method with few values may have the same sums in it for both labels.
    others = (reading.folds != fold) & (np.arange(len(reading.ids)) % 3 == 0)
    for spoiled, same in ((reading.folds == fold, True), (others, False)):
        labels = np.where(spoiled, ~reading.hallucinated, reading.hallucinated)
        other = replace(reading, hallucinated=labels)
        again = said_of(world, other)
        mine = torch.from_numpy(reading.folds == fold)
        for name in METHODS:
            before, after = (
                torch.stack([some.scores[fold, mine], some.chances[fold, mine]]) for some in (said[name], again[name])
            )
            moved, rounding = float((before - after).abs().max()), of_sums(terms, float(before.abs().max()), np.float32)
            assert moved <= rounding if same else moved > 10 * rounding, name


def test_a_random_gate_has_the_values_of_the_gate_among_those_scored_together():
    values, together = torch.arange(20.0).view(1, 20), torch.arange(20) % 3
    found = permuted(values, together, seed=1)
    assert not torch.equal(found, values)
    for number in range(3):
        assert sorted(found[0, together == number].tolist()) == values[0, together == number].tolist()


def test_a_gate_with_too_few_of_a_group_says_their_share(reading):
    training_sets = cross_fitting(torch.from_numpy(reading.folds))
    anchored = torch.zeros(5, len(reading.ids), dtype=torch.bool)
    anchored[:, torch.from_numpy(np.flatnonzero(reading.folds == 0)[:4])] = True
    found = read_gate(reading.states["first", "clean"][None], anchored & training_sets.train, training_sets)
    assert found[1].unique().tolist() == pytest.approx([4 / int(training_sets.train[1].sum())])


def test_the_gates_of_the_file_are_those_of_the_mixture(world, reading):
    table = gates_table(reading.states, world.examples)
    fold, clean = 3, reading.states["first", "clean"].numpy()
    labels, folds = reading.hallucinated.astype(int), reading.folds
    strength, _ = chosen(clean, labels, folds, fold)
    for gate, prompt in zip(GATES, ("first", "second"), strict=True):
        own, cut = (reading.states[prompt, name].numpy() for name in ("clean", EXACT))
        (before, _), (after, _) = (inner(own, labels, folds, fold, strength, some) for some in (own, cut))
        group = ((before >= 0) != (after >= 0)).astype(int)
        how, _ = chosen(clean, group, folds, fold)
        expected, rounding = says(PlainProbe(clean, group, how, np.flatnonzero(folds != fold)), clean[folds == fold])
        assert_same(table[gate].to_numpy()[folds == fold], expected, rounding)
    assert table["id"].to_list() == reading.ids


def test_the_table_has_every_method_and_example_with_its_own_fold(world, reading, said):
    table = scores_table(reading, probes_of_layers(world, reading), seed=0)
    assert table["method"].unique(maintain_order=True).to_list() == list(METHODS)
    rows = table.filter(method="stacked")
    assert rows["id"].to_list() == reading.ids
    assert (rows["fold"].to_numpy() == reading.folds).all()
    expected = [said["stacked"].scores[fold, number].item() for number, fold in enumerate(reading.folds)]
    assert rows["score"].to_list() == expected
    assert table["p"].is_between(0, 1).all()


def test_a_whole_training_set_validates_on_its_first_two_folds_and_holds_out_each():
    folds = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
    train = torch.arange(8) < 6
    training_sets = whole(train, folds)
    first, second = training_sets.splits()
    assert first.train.tolist() == [False, True, True, False, True, True, False, False]
    assert second.validated[0].tolist() == [False, True, False, False, True, False, False, False]
    assert [held.sum().item() for _, _, held in training_sets.nested()] == [2, 2, 2]


def test_a_probe_may_see_an_example_twice():
    random = torch.Generator().manual_seed(0)
    states, labels = torch.randn(1, 40, 5, generator=random), (torch.arange(40) % 2).float()
    states[..., 3] += 1000  # varies little, so that its spread is taken from the data
    counts = torch.randint(0, 3, (1, 40), generator=random)
    rows = torch.arange(40).repeat_interleave(counts[0])
    strengths = torch.tensor([[0.25]])
    once = fit(
        features=states[:, rows],
        labels=labels[rows],
        train=torch.ones(1, len(rows), dtype=torch.bool),
        strengths=strengths,
    )
    counted = fit(features=states, labels=labels, train=counts, strengths=strengths)
    # Means and logits add up examples and features, of which one is large.
    sums = of_sums(40 + 5 + 1, float((once.weight * states).abs().max()), np.float32)
    assert_same(counted.logits(states), once.logits(states), of_a_fit(states, strengths) + sums)
