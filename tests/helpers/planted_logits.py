"""Logits of truths that are known: what the knockout does to all examples alike, and whether there are two kinds."""

import numpy as np

from anchorscope.summarise.bootstrap import interval, resample
from anchorscope.summarise.curves import curves
from anchorscope.summarise.grouping import PlaceLogits, group


def planted_logits(kind: str, count: int, seed: int, push: float = 0.0, kept: float = 1.0) -> tuple[np.ndarray, ...]:
    """Clean and knocked-out logits [prompts, examples] of a truth that is known.

    Every example gets the same push and keeps the same share of its logit; with `two kinds`, four in ten lose theirs.
    """
    generator = np.random.default_rng(seed)
    evidence = np.where(np.arange(count) % 2, 2.0, -2.0) + generator.normal(size=count)
    clean = evidence + 0.3 * generator.normal(size=(2, count))
    cut = push + kept * clean
    if kind == "two kinds":
        cut = np.where(generator.random(count) < 0.4, push, cut)
    return clean, cut + 0.5 * generator.normal(size=(2, count))


TRUTHS = {
    "a push": ("one", {"push": 1.5}),
    "a shrink": ("one", {"kept": 0.4}),
    "a push and a shrink": ("one", {"push": 1.5, "kept": 0.4}),
    "two kinds": ("two kinds", {}),
    "two kinds and a push": ("two kinds", {"push": 1.5}),
    "two kinds and a shrink": ("two kinds", {"kept": 0.7}),
}


def gap_without(clean: np.ndarray, cut: np.ndarray, logits: str) -> tuple[float, float]:
    """The interval of the honest gap, from logits [prompts, examples]."""
    count = clean.shape[1]
    folds = np.arange(count)[None] // 2 % 5
    drawn = resample([str(index) for index in range(count)], 1, 500, seed=0)
    names = {"half_a": 0, "second_b": 1}
    before = {name: clean[None, None, prompt] for name, prompt in names.items()}
    after = {(name, "exact_question"): cut[None, None, prompt] for name, prompt in names.items()}
    place = PlaceLogits(before, after, folds)
    gap = curves(group(place, "honest", "exact_question", logits), drawn)["gap"]
    low, high = interval(gap.delta_logit.resampled)
    return float(low[0]), float(high[0])
