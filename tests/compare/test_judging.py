"""Verdicts of a comparison where the right one is known: planted curves, and noise of known size."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import yaml

from anchorscope.compare.finished import read_finished
from anchorscope.compare.judging import (
    BEYOND_REACH,
    NOT_COMPARABLE,
    WITHIN_REACH,
    Compared,
    beside_other,
    beside_published,
    judge_differences,
)
from anchorscope.compare.matching import match_runs
from planted_runs import HALF, LAYOUTS, level, plant_run
from small_things import ROOT

LANDMARKS = yaml.safe_load((ROOT / "workflow/resources/landmarks.yaml").read_text(encoding="utf-8"))
LLAMA = "meta-llama/Llama-3.2-1B"
LAYERS = 16


def met(model: str, dataset: str, anchor: str, layers: int) -> np.ndarray:
    """Llama-3.2-1B's landmarks, met: the ends of its ranges at the first and last layer, deepest at layer 10."""
    if anchor == "answer":
        return np.linspace(-10.0, 0.0, layers)
    curve = np.full(layers, -50.0)
    curve[[0, 10, 15]] = -20.0, -55.0, -30.0
    return curve


def moved(curve: Callable, by: float, anchor: str, layers: object, dataset: str | None = None) -> Callable:
    """The same curves, of which one is moved in some layers, on one dataset or on all."""

    def changed(model: str, name: str, which: str, count: int) -> np.ndarray:
        values = curve(model, name, which, count).copy()
        if which == anchor and dataset in (None, name):
            values[layers] += by
        return values

    return changed


def published(folder: Path, curves: Callable, **run: object) -> list[Compared]:
    found = read_finished(plant_run(folder, {"llama": LAYERS}, curves, hubs={"llama": LLAMA}, **run))
    return beside_published(found, LANDMARKS)


def compared(run: Path, other: Path) -> list[Compared]:
    this, that = read_finished(run), read_finished(other)
    return beside_other(this, that, match_runs(this, that))


def verdicts(rows: list[Compared]) -> set[str]:
    return {row.verdict for row in rows}


def test_landmarks_that_are_met_are_within_on_every_dataset(tmp_path):
    rows = published(tmp_path, met)
    assert verdicts(rows) == {WITHIN_REACH}
    assert {row.dataset for row in rows} == set(LAYOUTS)
    assert len(rows) == 3 * len(LAYOUTS) + 1, "three landmarks of all datasets, and the deepest layer on PopQA"
    assert {row.difference for row in rows} == {0.0}


@pytest.mark.parametrize(
    ("anchor", "layer", "missed"),
    [
        ("question", 0, "Question-Anchored at the first layer"),
        ("question", 15, "Question-Anchored at the last layer"),
        ("answer", 0, "Answer-Anchored in all layers"),
    ],
)
@pytest.mark.parametrize(("by", "verdict"), [(9.0, WITHIN_REACH), (11.0, BEYOND_REACH)])
def test_a_landmark_is_beyond_when_it_is_missed_by_more_than_the_tolerance(
    anchor, layer, missed, by, verdict, tmp_path
):
    """The first layer lies at the lower end of its range and the last at the upper: each is moved outwards."""
    outwards = by if layer else -by
    rows = published(tmp_path, moved(met, outwards, anchor, layer, dataset="nq"))
    assert [row.verdict for row in rows if (row.dataset, row.what) == ("nq", missed)] == [verdict]
    (row,) = (row for row in rows if (row.dataset, row.what) == ("nq", missed))
    assert (row.layer, row.difference) == (layer, outwards)
    assert {one.verdict for one in rows if one is not row} == {WITHIN_REACH}


def test_a_curve_that_is_deepest_in_other_layers_than_published_is_beyond(tmp_path):
    rows = published(tmp_path, moved(met, -6.0, "question", 3))
    (row,) = (row for row in rows if row.verdict == BEYOND_REACH)
    assert (row.dataset, row.layer, row.value) == ("popqa", 3, -56.0)
    assert row.because == "deepest at layer 3, published at 8 to 12"


@pytest.mark.parametrize(
    ("change", "because"),
    [
        ({"source": "bundled"}, "these are not the published questions"),
        ({"datasets": {"own": "My questions"}}, "these are not the published questions"),
        (
            {"config": {"headline": {"component": "mlp", "position": "final"}}},
            "the published figures show resid at answer_last, this run's headline is mlp at final",
        ),
    ],
)
def test_other_questions_and_other_places_are_not_compared_with_the_published_figures(change, because, tmp_path):
    rows = published(tmp_path, met, **change)
    assert verdicts(rows) == {NOT_COMPARABLE}
    assert {row.because for row in rows} == {because}


def test_layers_with_few_examples_are_not_compared_with_the_published_figures(tmp_path):
    rows = published(tmp_path, met, examples=19)
    assert verdicts(rows) == {NOT_COMPARABLE}
    assert {row.because for row in rows} == {"this run has too few examples there, or a probe no better than chance"}
    assert len(rows) == 3 * len(LAYOUTS) + 1


def test_a_model_of_other_layers_than_the_published_one_is_not_compared(tmp_path):
    run = read_finished(plant_run(tmp_path, {"llama": 4}, level, hubs={"llama": LLAMA}))
    (row,) = beside_published(run, LANDMARKS)
    assert (row.verdict, row.because) == (NOT_COMPARABLE, "other layers: 4 here, 16 in the published figure")


def test_a_model_that_no_published_figure_shows_is_one_row(tmp_path):
    run = read_finished(plant_run(tmp_path, {"mine": 4}))
    (row,) = beside_published(run, LANDMARKS)
    assert (row.verdict, row.dataset) == (NOT_COMPARABLE, None)
    assert row.because == "no landmark was read off the published figures for this model"


def test_a_run_is_within_itself_everywhere():
    gallery = ROOT / "docs/gallery"
    rows = compared(gallery, gallery)
    assert verdicts(rows) <= {WITHIN_REACH, NOT_COMPARABLE}
    assert {row.difference for row in rows if row.verdict == WITHIN_REACH} == {0.0}
    # Both curves and both gaps of two models on four datasets, but for one curve of fewer than 20 examples.
    assert [row.verdict for row in rows].count(WITHIN_REACH) == 2 * 4 * 4 - 1
    (left,) = (row for row in rows if row.verdict == NOT_COMPARABLE)
    assert (left.model, left.dataset, left.what) == ("smollm2-135m", "nq", "Question-Anchored curve")


def test_a_curve_that_is_moved_by_thirty_points_is_beyond_and_no_other_is(tmp_path):
    here = plant_run(tmp_path / "a", {"m": LAYERS}, moved(level, -30.0, "question", 7, dataset="nq"))
    rows = compared(here, plant_run(tmp_path / "b", {"m": LAYERS}))
    (row,) = (row for row in rows if row.verdict == BEYOND_REACH)
    assert (row.dataset, row.what, row.layer) == ("nq", "Question-Anchored curve", 7)
    assert (row.value, row.other, row.difference) == (-70.0, -40.0, -30.0)
    assert len(rows) == 4 * len(LAYOUTS)


def test_an_honest_gap_that_is_moved_is_beyond(tmp_path):
    here, there = (plant_run(tmp_path / name, {"m": 4}, gap=gap) for name, gap in (("a", -20.0), ("b", -5.0)))
    rows = [row for row in compared(here, there) if row.verdict == BEYOND_REACH]
    assert {row.what for row in rows} == {
        "honest gap, mean over layers",
        "honest gap without the push, mean over layers",
    }
    assert {row.difference for row in rows} == {-15.0}


def test_the_reach_is_that_of_a_difference_of_all_numbers_at_once(tmp_path):
    """Two intervals of ± 4 points: s = 4 / 1.96 each. 4 datasets × (2 curves of 5 layers and 2 gaps) are 48 numbers."""
    here, there = (plant_run(tmp_path / name, {"m": 5}, half=HALF) for name in ("a", "b"))
    row = compared(here, there)[0]
    one_in = 0.05 / (2 * 48)
    normal = np.random.default_rng(0).standard_normal(4_000_000)
    beyond = float((normal > row.reach / (HALF / 1.96 * 2**0.5)).mean())
    assert beyond == pytest.approx(one_in, abs=4 * (one_in / len(normal)) ** 0.5)


def test_groups_of_few_examples_are_not_compared(tmp_path):
    here, there = (plant_run(tmp_path / name, {"m": 4}, examples=count) for name, count in (("a", 19), ("b", 20)))
    rows = compared(here, there)
    curves = [row for row in rows if row.what.endswith("curve")]
    assert verdicts(curves) == {NOT_COMPARABLE}
    assert verdicts([row for row in rows if row not in curves]) == {WITHIN_REACH}, "gaps have intervals of their own"


PAIRS, LAYERS_DRAWN, ERROR = 4000, 20, 3.0
PROMISED = 1 - (1 - 0.05 / LAYERS_DRAWN) ** LAYERS_DRAWN  # of pairs with independent layers
MARGIN = 4 * (PROMISED * (1 - PROMISED) / PAIRS) ** 0.5  # four standard errors of that share


def share_beyond(values: np.ndarray, errors: np.ndarray, *, curve: bool = True) -> float:
    """The share of pairs of runs [pairs, 2, layers] with a layer beyond, by the errors that their intervals tell.

    With `curve`, the layers of a pair belong to one curve; otherwise each is one of its own.
    """
    pair, layer = (some.ravel() for some in np.indices((PAIRS, LAYERS_DRAWN)))
    table = {"model": "m", "dataset": pair, "what": layer * (not curve)}
    for run, names in enumerate((("value", "low", "high"), ("other", "other_low", "other_high"))):
        middle, reach = values[:, run].ravel(), 1.96 * errors[:, run].ravel()
        table |= dict(zip(names, (middle, middle - reach, middle + reach), strict=True))
    judged = judge_differences(pl.DataFrame(table), at_once=LAYERS_DRAWN)
    return judged.group_by("dataset").agg(pl.col("beyond").any())["beyond"].mean()


@pytest.mark.parametrize("alike", [0.0, 0.9])
def test_runs_that_differ_by_noise_alone_are_within_at_the_promised_rate(alike):
    """Independent layers use up what is promised; layers that hang together use less."""
    generator = np.random.default_rng(5)
    own = generator.standard_normal((PAIRS, 2, LAYERS_DRAWN))
    common = generator.standard_normal((PAIRS, 2, 1))
    noise = ERROR * (np.sqrt(1 - alike) * own + np.sqrt(alike) * common)
    found = share_beyond(noise, np.full(noise.shape, ERROR))
    assert (PROMISED - MARGIN) * (alike == 0) <= found <= PROMISED + MARGIN


def test_errors_that_few_repeats_estimate_roughly_raise_hardly_more_alarms_than_promised():
    """Three repeats estimate each layer's variance with two degrees of freedom: by chance some are far too small.

    As a curve of its own, with its own error, many a layer is beyond.
    """
    generator = np.random.default_rng(6)
    noise = ERROR * generator.standard_normal((PAIRS, 2, LAYERS_DRAWN))
    errors = ERROR * np.sqrt(generator.chisquare(2, noise.shape) / 2)
    assert share_beyond(noise, errors) <= PROMISED + MARGIN
    assert share_beyond(noise, errors, curve=False) > 5 * PROMISED


def test_where_repeats_alone_tell_the_error_every_fourth_comparison_may_have_a_number_beyond():
    """The worst case that docs/models.md names: a variance of 1 in both runs, known from three repeats only, for one
    model's two curves on four datasets, whose 16 layers move together (correlation 0.9). There 5 % do not hold."""
    draws, curves, layers, repeats = 2000, 8, 16, 3
    generator = np.random.default_rng(0)

    def noise(count: int) -> np.ndarray:
        common, own = (generator.normal(size=(count, draws, curves, size)) for size in (1, layers))
        return 0.9**0.5 * common + 0.1**0.5 * own

    columns = {}
    for value, low, high in (("value", "low", "high"), ("other", "other_low", "other_high")):
        (mean,), half = noise(1), 1.96 * noise(repeats).std(0, ddof=1)
        columns |= {value: mean.ravel(), low: (mean - half).ravel(), high: (mean + half).ravel()}
    draw, curve, _ = (index.ravel() for index in np.indices((draws, curves, layers)))
    numbers = pl.DataFrame(columns).with_columns(model=pl.lit("m"), dataset=pl.Series(draw), what=pl.Series(curve))
    judged = judge_differences(numbers, at_once=curves * layers)
    beyond = judged.group_by("dataset").agg(pl.col("beyond").any())["beyond"].mean()
    assert beyond == pytest.approx(0.24, abs=0.04)  # four standard errors of 2,000 draws
