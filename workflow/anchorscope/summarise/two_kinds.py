"""Are there two kinds of examples? What one component and position says about it at its reference layer."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from anchorscope.summarise.bootstrap import interval
from anchorscope.summarise.dip import dip_test
from anchorscope.summarise.mixture import two_normals
from anchorscope.summarise.one_mechanism import fit_shift

SHAPE = ("dip", "dip_p", "bic_gain", "lower_share", "lower_mean", "upper_mean")
AGREEMENT = tuple(f"{name}{end}" for name in ("kappa", "correlation") for end in ("", "_low", "_high"))
TWO_KINDS = (*AGREEMENT, *SHAPE)
FEWEST = 8  # examples; fewer say nothing about a mixture of five parameters or a dip
Estimate = tuple[float | None, float | None, float | None]  # with both ends of its interval; None: cannot be said


@dataclass(frozen=True)
class BothPrompts:
    """What both prompts say about every example at the reference layer: arrays [prompts, examples]."""

    question_anchored: np.ndarray  # bool
    delta_p: np.ndarray
    clean: np.ndarray  # logits
    changed: np.ndarray  # logits under the knockout


def two_kinds(prompts: BothPrompts, weights: np.ndarray, seed: int) -> dict:
    """Agreement of the two prompts, and the shape of the logit shifts; None where something cannot be said.

    `weights` are resamples [draws, examples].
    """
    agreement = (*_kappa(prompts.question_anchored, weights), *_correlation(prompts.delta_p, weights))
    row = {"n": prompts.delta_p.shape[1], **dict(zip(AGREEMENT, agreement, strict=True))}
    shifts = unexplained_shifts(prompts.clean, prompts.changed)
    if len(shifts) < FEWEST or shifts.std() <= 1e-6 * max(1e-6, np.abs(prompts.clean).mean()):
        return row | dict.fromkeys(SHAPE)  # too few, or the knockout does the same to all
    two = two_normals(shifts)
    return row | dict(zip(SHAPE, (*dip_test(shifts, seed), two.bic_gain, two.share, *two.means), strict=True))


def unexplained_shifts(clean: np.ndarray, changed: np.ndarray) -> np.ndarray:
    """Each example's logit shift towards its clean verdict, averaged over prompts: [examples].

    What the clean logit explains is taken out first. Otherwise a knockout that shrinks every logit alike would give two
    modes, one for each verdict.
    """
    signed = [
        np.where(before >= 0, 1.0, -1.0) * fit_shift(before, after).residuals(before, after)
        for before, after in zip(clean, changed, strict=True)
    ]
    return np.mean(signed, axis=0)


def _kappa(labels: np.ndarray, weights: np.ndarray) -> Estimate:
    """Cohen's kappa of two labellings, with its interval."""

    def kappa(drawn: np.ndarray) -> np.ndarray:
        total = drawn.sum(1)
        first, second, same = (drawn @ part / total for part in (*labels.astype(float), labels[0] == labels[1]))
        by_chance = first * second + (1 - first) * (1 - second)
        with np.errstate(invalid="ignore", divide="ignore"):
            return (same - by_chance) / (1 - by_chance)

    return _with_interval(kappa, weights)


def _correlation(values: np.ndarray, weights: np.ndarray) -> Estimate:
    """Pearson's correlation of two rows, with its interval."""
    first, second = values - values.mean(1, keepdims=True)

    def correlation(drawn: np.ndarray) -> np.ndarray:
        total = drawn.sum(1)
        one, two, product, one_square, two_square = (
            drawn @ part / total for part in (first, second, first * second, first**2, second**2)
        )
        variances = (one_square - one**2).clip(min=0) * (two_square - two**2).clip(min=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(variances > 0, (product - one * two) / np.sqrt(variances), np.nan)

    return _with_interval(correlation, weights)


def _with_interval(estimate: Callable[[np.ndarray], np.ndarray], weights: np.ndarray) -> Estimate:
    value = float(estimate(np.ones((1, weights.shape[1])))[0])
    if not np.isfinite(value):
        return None, None, None
    low, high = interval(estimate(weights)[:, None])
    return value, float(low[0]), float(high[0])
