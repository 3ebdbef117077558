"""Methods that learnt from one dataset, tested on another, held to one probe at a time."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from anchorscope.detect.methods import read_texts
from anchorscope.detect.names import METHODS
from anchorscope.detect.reading import Reading, joined
from anchorscope.detect.trainings import whole
from anchorscope.detect.transfer import OTHERS, Plan, carried_over, plans, probe_plans
from anchorscope.probe.strengths import STRENGTHS
from planted_detection import ONE_DIRECTION, TWO_DIRECTIONS, World

NAMES = ["sea", "sky", "sand"]


@pytest.fixture(scope="module")
def worlds() -> list[World]:
    return [
        World(truth, seed, examples=60) for seed, truth in enumerate([ONE_DIRECTION, TWO_DIRECTIONS, ONE_DIRECTION])
    ]


@pytest.fixture(scope="module")
def readings(worlds) -> list[Reading]:
    return [world.reading() for world in worlds]


def table_of(worlds: list[World], readings: list[Reading], planned: list[Plan]) -> pl.DataFrame:
    probes = probe_plans(planned, readings)(torch.cat([world.states for world in worlds], dim=1))
    return carried_over(planned, probes, readings, seed=0)


@pytest.fixture(scope="module")
def carried(worlds, readings) -> pl.DataFrame:
    return table_of(worlds, readings, plans(NAMES, readings))


def test_every_dataset_teaches_every_other_and_all_others_teach_each(carried):
    pairs = carried.filter(method="probe").select("trained_on", "dataset").rows()
    expected = [(one, other) for one in NAMES for other in NAMES if one != other] + [(OTHERS, one) for one in NAMES]
    assert sorted(pairs) == sorted(expected)
    assert carried["method"].unique(maintain_order=True).to_list() == list(METHODS)
    assert carried["n"].unique().to_list() == [60]


def test_one_dataset_teaches_nothing_and_of_two_there_are_no_others(readings):
    assert plans(NAMES[:1], readings[:1]) == []
    assert [plan.trained_on for plan in plans(NAMES[:2], readings[:2])] == NAMES[:2]


def loss(logits: np.ndarray, labels: np.ndarray) -> float:
    return float(np.mean([np.log1p(np.exp((1 - 2 * label) * logits[labels == label])).mean() for label in (0, 1)]))


@pytest.mark.parametrize(("teachers", "tested"), [([0], 1), ([1, 2], 0)])
def test_the_probe_that_carries_over_is_scikit_learns_on_the_whole_of_its_teachers(carried, readings, teachers, tested):
    taught = joined([readings[number] for number in teachers])
    states, labels = taught.states["first", "clean"].double().numpy(), taught.hallucinated.astype(int)

    def fitted(rows: np.ndarray, strength: float):
        mean, scale = states[rows].mean(0), states[rows].std(0)
        plain = LogisticRegression(C=1 / (strength * rows.sum()), class_weight="balanced", tol=1e-10, max_iter=10_000)
        plain.fit((states[rows] - mean) / scale, labels[rows])
        return lambda others: plain.decision_function((others - mean) / scale)

    def inner_loss(strength: float) -> float:
        held = [taught.folds == fold for fold in (0, 1)]
        return sum(loss(fitted(~mine, strength)(states[mine]), labels[mine]) for mine in held)

    strength = min(STRENGTHS, key=inner_loss)
    probe = fitted(np.ones(len(labels), bool), strength)
    expected = roc_auc_score(
        readings[tested].hallucinated, probe(readings[tested].states["first", "clean"].double().numpy())
    )
    trained_on = NAMES[teachers[0]] if len(teachers) == 1 else OTHERS
    row = carried.filter(method="probe", trained_on=trained_on, dataset=NAMES[tested])
    assert row["auc"].item() == pytest.approx(expected, abs=0.002), "one pair in 900 may change places by rounding"


def test_labels_of_the_dataset_that_is_tested_change_no_score(worlds, readings):
    (plan, *_) = plans(NAMES, readings)
    tested = NAMES[2]
    turned = replace(readings[2], hallucinated=~readings[2].hallucinated)
    before, after = (
        table_of(worlds, [*readings[:2], last], [plan]).filter(dataset=tested) for last in (readings[2], turned)
    )
    np.testing.assert_allclose(after["auc"].to_numpy(), 1 - before["auc"].to_numpy(), atol=1e-12)


def test_a_word_that_the_training_data_lack_has_no_weight(readings):
    reading = joined(readings[:2])
    train = torch.arange(120) < 60
    trainings = whole(train, torch.from_numpy(reading.folds))
    before = read_texts(reading, trainings)
    new = replace(reading, questions=[*reading.questions[:60], *(f"{text} zebra" for text in reading.questions[60:])])
    for name, logits in read_texts(new, trainings).items():
        assert torch.equal(logits, before[name])
