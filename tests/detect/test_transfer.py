"""Methods that learnt from one dataset, tested on another, held to one probe at a time."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from sklearn.metrics import roc_auc_score

from anchorscope.detect.fits import Fits
from anchorscope.detect.methods import METHODS, OTHERS
from anchorscope.detect.reading import Reading, join_readings
from anchorscope.detect.scoring import Plans, plans, probe_plans, transfer_areas
from anchorscope.probe.pooled import joint_clusters
from anchorscope.probe.strengths import STRENGTHS, whole
from plain_probe import PlainProbe
from planted_detection import NOTHING, ONE_DIRECTION, TWO_DIRECTIONS, World
from rounding import assert_same, of_an_area

NAMES = ["sea", "sky", "sand"]


@pytest.fixture(scope="module")
def worlds() -> list[World]:
    return [
        World(truth, seed, examples=60) for seed, truth in enumerate([ONE_DIRECTION, TWO_DIRECTIONS, ONE_DIRECTION])
    ]


def named_apart(reading: Reading, name: str) -> Reading:
    """The same examples with questions and clusters that no other dataset has."""
    questions = [f"{name}{number} {text}" for number, text in enumerate(reading.questions)]
    return replace(reading, questions=questions, clusters=[f"{name} {cluster}" for cluster in reading.clusters])


@pytest.fixture(scope="module")
def readings(worlds) -> list[Reading]:
    return [named_apart(world.reading(), name) for world, name in zip(worlds, NAMES, strict=True)]


def table_of(worlds: list[World], planned: Plans) -> pl.DataFrame:
    states = torch.cat([world.states for world in worlds], dim=1)
    probes = probe_plans(planned)(states, slice(None)) if planned.taught else []
    return transfer_areas(planned, probes, seed=0)


@pytest.fixture(scope="module")
def carried(worlds, readings) -> pl.DataFrame:
    return table_of(worlds, plans(NAMES, readings))


def test_every_dataset_teaches_every_other_and_all_others_teach_each(carried):
    pairs = carried.filter(method="probe").select("trained_on", "dataset").rows()
    expected = [(one, other) for one in NAMES for other in NAMES if one != other] + [(OTHERS, one) for one in NAMES]
    assert sorted(pairs) == sorted(expected)
    assert carried["method"].unique(maintain_order=True).to_list() == list(METHODS)
    assert carried["n"].unique().to_list() == [60]
    assert carried["left_out"].unique().to_list() == [0], "they share nothing"


def test_one_dataset_teaches_nothing_and_of_two_there_are_no_others(readings):
    alone, two = plans(NAMES[:1], readings[:1]), plans(NAMES[:2], readings[:2])
    assert (alone.taught, alone.untaught) == ([], [])
    assert [plan.trained_on for plan in two.taught] == NAMES[:2]


def test_datasets_that_share_nothing_with_their_teacher_are_tested_after_one_training(readings):
    assert [(plan.trained_on, list(plan.tested)) for plan in plans(NAMES, readings).taught[:3]] == [
        (name, [other for other in NAMES if other != name]) for name in NAMES
    ]


def loss(logits: np.ndarray, labels: np.ndarray) -> float:
    return float(np.mean([np.log1p(np.exp((1 - 2 * label) * logits[labels == label])).mean() for label in (0, 1)]))


@pytest.mark.parametrize(("teachers", "tested"), [([0], 1), ([1, 2], 0)])
def test_the_probe_that_carries_over_is_scikit_learns_on_the_whole_of_its_teachers(carried, readings, teachers, tested):
    taught = join_readings([readings[number] for number in teachers])
    states, labels = taught.states["first", "clean"].double().numpy(), taught.hallucinated.astype(int)

    def fitted(rows: np.ndarray, strength: float) -> PlainProbe:
        return PlainProbe(states, labels, strength, np.flatnonzero(rows))

    def inner_loss(strength: float) -> float:
        held = [taught.folds == fold for fold in (0, 1)]
        return sum(loss(fitted(~mine, strength)(states[mine]), labels[mine]) for mine in held)

    probe = fitted(np.ones(len(labels), bool), min(STRENGTHS, key=inner_loss))
    others, positive = readings[tested].states["first", "clean"].double().numpy(), readings[tested].hallucinated
    logits = probe(others)
    trained_on = NAMES[teachers[0]] if len(teachers) == 1 else OTHERS
    row = carried.filter(method="probe", trained_on=trained_on, dataset=NAMES[tested])
    rounding = of_an_area(logits, positive, probe.rounding(said_of=others))
    assert_same(row["auc"], roc_auc_score(positive, logits), rounding)


def test_labels_of_the_dataset_that_is_tested_change_no_score(worlds, readings):
    tested = NAMES[2]
    turned = replace(readings[2], hallucinated=~readings[2].hallucinated)
    before, after = (
        table_of(worlds, plans(NAMES, [*readings[:2], last])).filter(trained_on=NAMES[0], dataset=tested)
        for last in (readings[2], turned)
    )
    np.testing.assert_allclose(after["auc"].to_numpy(), 1 - before["auc"].to_numpy(), atol=1e-12)


def test_a_word_that_the_training_data_lack_has_no_weight(readings):
    reading = join_readings(readings[:2])
    train = torch.arange(120) < 60
    training_sets = whole(train, torch.from_numpy(reading.folds))
    new = replace(reading, questions=[*reading.questions[:60], *(f"{text} zebra" for text in reading.questions[60:])])
    before, after = (Fits(one, None, training_sets, together=one.folds, seed=0) for one in (reading, new))
    for method in METHODS.values():
        if method.kind == "text":
            assert torch.equal(method.score(after).scores, method.score(before).scores)


def slow_clusters(questions: list[str], clusters: list[str]) -> list[str]:
    """Plain words compared, pair by pair, until no example takes another's number any more."""
    numbers, changed = list(range(len(questions))), True
    while changed:
        changed = False
        for one in range(len(questions)):
            for other in range(one):
                same = any(some[one].lower() == some[other].lower() for some in (questions, clusters))
                if same and numbers[one] != numbers[other]:
                    numbers[one] = numbers[other] = min(numbers[one], numbers[other])
                    changed = True
    return [clusters[number] for number in numbers]


def test_joint_clusters_are_the_parts_of_the_graph_of_shared_questions_and_clusters():
    random = np.random.default_rng(0)
    for count in (5, 20, 40):
        questions = [f"{random.choice(['Who', 'who'])} q{number}" for number in random.integers(0, 25, count)]
        clusters = [f"{random.choice(['S', 's'])}{number}" for number in random.integers(0, 25, count)]
        assert joint_clusters(questions, clusters) == slow_clusters(questions, clusters)


def test_questions_and_subjects_are_compared_by_their_normal_words():
    questions = ["Who wrote Émile?", "who wrote emile", "who sang it", "when was it", "who are they", "where are they"]
    clusters = ["Émile", "id1", "The Beatles", "beatles", "The The", "the the"]
    expected = ["Émile", "Émile", "The Beatles", "The Beatles", "The The", "The The"]
    assert joint_clusters(questions, clusters) == expected
    assert joint_clusters(["a b", "c"], ["c", "a b"]) == ["c", "a b"], "a question is no subject"


def relabelled(reading: Reading, questions: dict[int, str], clusters: dict[int, str]) -> Reading:
    """With some questions and some clusters in place of its own."""
    count = range(len(reading.ids))
    return replace(
        reading,
        questions=[questions.get(number, reading.questions[number]) for number in count],
        clusters=[clusters.get(number, reading.clusters[number]) for number in count],
    )


def test_whoever_shares_a_question_or_a_subject_with_the_tested_dataset_is_left_out_of_training(readings):
    sea, sky, sand = readings
    # 0 and 1 of sea are about one subject, of which sky asks one question without naming it; 2 is about a subject of
    # sky, spelt otherwise. 5 of sand asks what 0 of sea does.
    sea = relabelled(sea, {0: "Who wrote Emma?"}, {0: "Emma", 1: "Emma", 2: "the KING"})
    sky = relabelled(sky, {7: "who wrote emma"}, {3: "King", 4: "King"})
    sand = relabelled(sand, {5: "Who wrote Emma"}, {})
    planned = plans(NAMES, [sea, sky, sand])
    assert planned.untaught == []
    starts = dict(zip(NAMES, (0, 60, 120), strict=True))
    teachers = {**{name: [name] for name in NAMES}, "others": NAMES}
    shared = {  # by what is learnt from and what is tested
        ("sea", "sky"): [0, 1, 2],
        ("sea", "sand"): [0, 1],
        ("sky", "sea"): [67, 63, 64],
        ("sky", "sand"): [67],
        ("sand", "sea"): [125],
        ("sand", "sky"): [125],
        ("others", "sea"): [67, 63, 64, 125],
        ("others", "sky"): [0, 1, 2, 125],
        ("others", "sand"): [0, 1, 67],
    }
    found = {(plan.trained_on, tested): plan for plan in planned.taught for tested in plan.tested}
    assert found.keys() == shared.keys()
    for (trained_on, tested), out in shared.items():
        plan = found[trained_on, tested]
        learnt = {
            start + number
            for name, start in starts.items()
            if name in teachers[trained_on] and name != tested
            for number in range(60)
        }
        assert set(np.flatnonzero(plan.train)) == learnt - set(out), (trained_on, tested)
        assert plan.left_out == len(out)
    everyone = planned.everyone
    assert len({everyone.folds[number] for number in (0, 1, 67, 125)}) == 1, "inner folds do not divide them"
    assert len({everyone.halves[number] for number in (0, 1, 67, 125)}) == 1
    apart = np.setdiff1d(np.arange(180), np.concatenate(list(map(np.array, shared.values()))))
    np.testing.assert_array_equal(everyone.folds[apart], np.concatenate([one.folds for one in readings])[apart])


def test_nothing_of_who_is_left_out_changes_a_score(worlds, readings):
    """Neither labels nor states, words or outputs of examples that share a subject with the tested dataset.

    They stand in sums with the weight zero, or not at all: no bit of what is said of others depends on them.
    """
    sea, sky = readings[:2]
    shared = np.arange(60) % 8 < 2  # of both classes
    sea = relabelled(sea, {}, {int(number): f"subject {number}" for number in np.flatnonzero(shared)})
    sky = relabelled(sky, {}, {int(number): f"Subject {number}" for number in np.flatnonzero(shared)})
    where, random = torch.from_numpy(shared)[:, None], torch.Generator().manual_seed(0)

    def spoil(states: torch.Tensor) -> torch.Tensor:
        return torch.where(where, 5 * torch.randn(states.shape, generator=random), states)

    spoiled = replace(
        sea,
        hallucinated=sea.hallucinated ^ shared,
        questions=[f"moon {text} zebra" if out else text for text, out in zip(sea.questions, shared, strict=True)],
        answers=["zebra" if out else text for text, out in zip(sea.answers, shared, strict=True)],
        lengths=np.where(shared, 99.0, sea.lengths),
        outputs={name: np.where(shared, 9.0, values) for name, values in sea.outputs.items()},
        states={run: spoil(states) for run, states in sea.states.items()},
        reweighted=replace(
            sea.reweighted,
            question_last=spoil(sea.reweighted.question_last),
            states={key: spoil(states) for key, states in sea.reweighted.states.items()},
        ),
    )
    tables = []
    for reading, first in ((sea, worlds[0].states), (spoiled, spoil(worlds[0].states))):
        planned = plans(NAMES[:2], [reading, sky])
        probes = probe_plans(planned)(torch.cat([first, worlds[1].states], dim=1), slice(None))
        tables.append(transfer_areas(planned, probes, seed=0).filter(trained_on="sea", dataset="sky"))
    before, after = tables
    assert before["left_out"].unique().to_list() == [16]
    assert before["auc"].null_count() == 0
    assert after.equals(before)


def test_of_two_copies_of_one_file_nothing_is_left_to_learn_from_and_that_is_said(caplog):
    world = World(NOTHING, seed=0, examples=60)
    reading = named_apart(world.reading(), "sea")
    with caplog.at_level("WARNING"):
        table = table_of([world, world], plans(["file", "copy"], [reading, reading]))
    assert set(table.select("trained_on", "dataset").rows()) == {("file", "copy"), ("copy", "file")}
    assert table.filter(trained_on="file")["method"].to_list() == list(METHODS)
    assert set(table["left_out"]) == set(table["n"]) == {60}
    assert all(table[name].null_count() == len(table) for name in ("auc", "auc_low", "auc_high"))
    expected = (
        "not carried over: 60 examples of file share a question or a subject with copy; 0 right and 0 hallucinated "
        "answers are left, which are too few to learn from. 20 of each are needed, and some of each in every fold."
    )
    assert expected in caplog.messages


def test_without_the_copies_others_teach_what_is_left(worlds, readings):
    """Two copies, and a dataset that shares nothing with them."""
    sea, sky, _ = readings
    planned = plans(["sea", "copy", "sky"], [sea, sea, sky])
    assert {(plan.trained_on, *plan.tested) for plan in planned.untaught} == {("sea", "copy"), ("copy", "sea")}
    (mine,) = (plan for plan in planned.taught if plan.trained_on == OTHERS and "sea" in plan.tested)
    assert np.flatnonzero(mine.train).tolist() == list(range(120, 180)), "sky alone"
    assert mine.left_out == 60


def test_questions_that_two_datasets_share_give_methods_nothing_where_states_tell_nothing():
    """Half of the questions, with the same states, words and answers: learnt by heart, they would be told apart."""
    world, other = World(NOTHING, seed=1, examples=200), World(NOTHING, seed=2, examples=200)
    first, second = (
        replace(one, reweighted=replace(one.reweighted, question_last=torch.from_numpy(wide).float()))
        for one, wide in zip(
            (named_apart(world.reading(), "sea"), named_apart(other.reading(), "sky")),
            np.random.default_rng(0).normal(size=(2, 200, 400)),  # as wide as it takes to learn them by heart
            strict=True,
        )
    )
    half = np.arange(200) < 100

    def mixed(mine, theirs):
        if isinstance(mine, list):
            return [one if out else two for one, two, out in zip(mine, theirs, half, strict=True)]
        kind, where = (np, half) if isinstance(mine, np.ndarray) else (torch, torch.from_numpy(half))
        return kind.where(where.reshape(-1, *(1 for _ in mine.shape[1:])), mine, theirs)

    second = replace(
        second,
        **{name: mixed(getattr(first, name), getattr(second, name)) for name in ("questions", "answers", "lengths")},
        hallucinated=mixed(first.hallucinated, second.hallucinated),
        outputs={name: mixed(first.outputs[name], second.outputs[name]) for name in first.outputs},
        states={run: mixed(first.states[run], second.states[run]) for run in first.states},
        reweighted=replace(
            second.reweighted,
            question_last=mixed(first.reweighted.question_last, second.reweighted.question_last),
            states={key: mixed(some, second.reweighted.states[key]) for key, some in first.reweighted.states.items()},
        ),
    )
    planned = plans(["sea", "sky"], [first, second])
    states = torch.where(torch.from_numpy(half)[:, None], world.states, other.states)
    by_heart = replace(
        planned,
        taught=[replace(plan, train=planned.dataset == number) for number, plan in enumerate(planned.taught)],
    )
    table, leaky = (
        transfer_areas(some, probe_plans(some)(torch.cat([world.states, states], dim=1), slice(None)), seed=0)
        for some in (planned, by_heart)
    )
    assert set(table["left_out"]) == {100}
    learnt = pl.col("method").is_in(["question_probe", "both_words", "probe", "saplma", "stacked", "mop", "ensemble"])
    assert leaky.filter(method="question_probe")["auc"].min() > 0.65
    assert table.filter(learnt)["auc"].is_between(0.4, 0.6).all(), table.filter(learnt)
