"""Detection on planted truths: pathways help only where they matter, and labels that mean nothing are not told."""

from collections import Counter

import pytest
import torch

from anchorscope.detect.areas import areas, gains
from anchorscope.detect.fits import Fits, probe_layers
from anchorscope.detect.methods import METHODS
from anchorscope.detect.scoring import scores_table, training_sets_of
from anchorscope.probe.strengths import fit_training_sets, own_fold
from planted_detection import NOTHING, ONE_DIRECTION, TWO_DIRECTIONS, World, probes_of_layers

FEW, MANY = 4, 100


def mixture_is_ahead(truth: str, seed: int) -> bool:
    """Whether Mixture of Probes ranks better than the ensemble, by its interval."""
    reading = World(truth, seed, examples=300).reading()
    training_sets, labels, folds = training_sets_of(reading), reading.labels, torch.from_numpy(reading.folds)
    clean = reading.states["first", "clean"][None]
    probes = probe_layers(clean, labels, training_sets, fit_training_sets(clean, labels, training_sets))
    fits = Fits(reading, probes, training_sets, together=reading.folds, seed=seed)
    mop, others = (own_fold(METHODS[name].score(fits).scores, folds).numpy() for name in ("mop", "ensemble"))
    gain = gains(mop, others[None], reading.hallucinated, reading.clusters, folds=reading.folds)
    return bool(gain["gain_low"][0] > 0)


@pytest.mark.slow
def test_mixture_of_probes_is_ahead_where_pathways_matter_and_only_there():
    assert sum(mixture_is_ahead(TWO_DIRECTIONS, seed) for seed in range(FEW)) >= FEW - 1
    assert sum(mixture_is_ahead(ONE_DIRECTION, seed) for seed in range(FEW)) <= 1


@pytest.mark.slow
def test_mixture_of_probes_is_ahead_in_many_draws_where_pathways_matter_and_seldom_elsewhere():
    assert sum(mixture_is_ahead(TWO_DIRECTIONS, seed) for seed in range(MANY)) >= 0.90 * MANY
    assert sum(mixture_is_ahead(ONE_DIRECTION, seed) for seed in range(MANY)) <= 0.07 * MANY


def intervals_that_hold_chance(draws: int) -> Counter:
    """How many intervals of each method hold one half, where nothing has to do with the labels."""
    held: Counter = Counter(dict.fromkeys(METHODS, 0))
    for seed in range(draws):
        world = World(NOTHING, seed)
        reading = world.reading()
        table = scores_table(reading, probes_of_layers(world, reading), seed)
        scores = table["score"].to_numpy().reshape(len(METHODS), -1)
        found = areas(scores, reading.hallucinated, reading.clusters, reading.folds)
        inside = (found["auc_low"] <= 0.5) & (found["auc_high"] >= 0.5)
        held.update(dict(zip(METHODS, map(int, inside), strict=True)))
    return held


def test_intervals_hold_one_half_where_labels_mean_nothing():
    held = intervals_that_hold_chance(2)
    assert sum(held.values()) >= 0.9 * 2 * len(METHODS), held


@pytest.mark.slow
def test_every_methods_intervals_hold_one_half_in_many_draws_where_labels_mean_nothing():
    held = intervals_that_hold_chance(MANY)
    assert min(held.values()) >= 0.93 * MANY, held
