"""Do the two prompts agree, and do logit shifts have one hump? At the reference layer of a component and position."""

from collections.abc import Callable

import numpy as np

from anchorscope.summarise.bootstrap import Resamples, ends
from anchorscope.summarise.dip import dip_test
from anchorscope.summarise.grouping import RoleResult
from anchorscope.summarise.one_mechanism import fit_shift

SHAPE = ("dip", "dip_p")
AGREEMENT = tuple(f"{name}{end}" for name in ("kappa", "correlation") for end in ("", "_low", "_high"))
FEWEST = 8  # examples; fewer say nothing about a dip
Estimated = tuple[float | None, float | None, float | None]  # with both ends of its interval; None: cannot be said


def agreement(roles: list[RoleResult], layer: int, resamples: Resamples) -> dict[str, float | None]:
    """Do the two prompts of `replicate` agree on the anchors, and on delta P, at a layer? Averaged over repeats."""
    labels = np.stack([role.question_anchored[:, layer] for role in roles], axis=1)  # [repeats, prompts, examples]
    changes = np.stack([role.delta_p[:, layer] for role in roles], axis=1)
    trained = roles[0].trained
    found = (
        *_over_repeats(_kappa, labels, resamples, trained),
        *_over_repeats(_correlation, changes, resamples, trained),
    )
    return dict(zip(AGREEMENT, found, strict=True))


def shape(clean: np.ndarray, changed: np.ndarray, seed: int) -> dict[str, float | None]:
    """One hump or two, in the logit shifts of logits [prompts, examples]; None where it cannot be said."""
    shifts = unexplained_shifts(clean, changed)
    if len(shifts) < FEWEST or shifts.std() <= 1e-6 * max(1e-6, np.abs(clean).mean()):
        return dict.fromkeys(SHAPE)  # too few, or the knockout does the same to all
    return dict(zip(SHAPE, dip_test(shifts, seed), strict=True))


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


def _kappa(labels: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Cohen's kappa of two labellings [2, examples] in each resample: [draws]."""
    total = drawn.sum(1)
    first, second, same = (drawn @ part / total for part in (*labels.astype(float), labels[0] == labels[1]))
    by_chance = first * second + (1 - first) * (1 - second)
    with np.errstate(invalid="ignore", divide="ignore"):
        return (same - by_chance) / (1 - by_chance)


def _correlation(values: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Pearson's correlation of two rows in each resample: [draws]."""
    first, second = values - values.mean(1, keepdims=True)
    total = drawn.sum(1)
    one, two, product, one_square, two_square = (
        drawn @ part / total for part in (first, second, first * second, first**2, second**2)
    )
    variances = (one_square - one**2).clip(min=0) * (two_square - two**2).clip(min=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(variances > 0, (product - one * two) / np.sqrt(variances), np.nan)


def _over_repeats(
    estimate: Callable[[np.ndarray, np.ndarray], np.ndarray], values: np.ndarray, resamples: Resamples, trained: float
) -> Estimated:
    """The mean over repeats of an estimate from values [repeats, 2, examples], with its interval.

    Its probes learnt from the share `trained` of the examples.
    """
    once = np.ones((1, resamples.weights.shape[1]))
    each = np.array([estimate(of_repeat, once)[0] for of_repeat in values])
    mean = float(each.mean())
    if not np.isfinite(mean):
        return None, None, None
    drawn = np.mean([estimate(of_repeat, resamples.weights) for of_repeat in values], axis=0)
    return mean, *ends(drawn + resamples.factors(trained) @ (each - mean))
