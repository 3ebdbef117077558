"""What would be seen if there were one mechanism and not two pathways, and what speaks for two kinds of examples.

Under one mechanism (the null N2) the knockout shifts every example's logit by a draw from one normal distribution,
whose mean depends on the clean logit along a line. Fitted to a run, it has that run's mean, spread and dependence, but
not two kinds of examples.

Two kinds would show at the reference layer of a component and position: do the two prompts agree, and do logit shifts
have one hump?
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from anchorscope.summarise.bootstrap import CACHED, Resamples, ends
from anchorscope.summarise.dip import dip_test
from anchorscope.summarise.grouping import RoleResult, fit_lines

SHAPE = ("dip", "dip_p")
AGREEMENT = tuple(f"{name}{end}" for name in ("kappa", "correlation") for end in ("", "_low", "_high"))
FEWEST = 8  # examples; fewer say nothing about a dip


def fit_shift(clean: np.ndarray, changed: np.ndarray) -> tuple[float, float, np.ndarray]:
    """Level and slope of the shift along the clean logit, and what they leave of one layer's shifts [examples].

    Under one mechanism that is normal. There is no slope where all clean logits are equal.
    """
    level, slope = (float(value[0]) for value in fit_lines(clean, changed - clean, np.ones(clean.shape)))
    return level, slope, changed - clean - level - slope * clean


def simulate(
    clean: np.ndarray, changed: np.ndarray, rule: str, logits: str, simulations: int, seed: int
) -> dict[str, np.ndarray]:
    """Group means [simulations, layers] of delta P under a rule, from logits [prompts, repeats, layers, examples].

    Under `flip`, the first prompt labels and measures. Under `honest`, each prompt has its own shifts; one labels
    and the other measures, then the other way round, and the result is the mean of both. Repeats are averaged. The same
    standard normal numbers serve every layer and repeat: they stand for the examples' own forward passes. Single
    precision is far finer than the simulations are.
    """
    noise = np.random.default_rng(seed).standard_normal((len(clean), simulations, clean.shape[-1]), dtype=np.float32)
    roles = {"flip": [(0, 0)], "honest": [(0, 1), (1, 0)]}[rule]
    found = np.empty((2, simulations, *clean.shape[1:3]))
    few = max(1, CACHED // clean.shape[-1])  # simulations at a time
    for repeat, layer in np.ndindex(*clean.shape[1:3]):
        prompts = [
            _Shifted.of(*both, logits) for both in zip(clean[:, repeat, layer], changed[:, repeat, layer], strict=True)
        ]
        for start in range(0, simulations, few):
            some = slice(start, start + few)
            drawn = [prompt.draw(noise[number, some]) for number, prompt in enumerate(prompts)]
            means = [_group_means(drawn[labels][0], drawn[measures][1]) for labels, measures in roles]
            found[:, some, repeat, layer] = 100 * np.mean(means, axis=0)
    question, answer = found.mean(2)
    return {"question": question, "answer": answer, "gap": question - answer}


@dataclass(frozen=True)
class _Shifted:
    """Half of the logits for each example's own clean verdict that a knockout leaves, by a standard normal number.

    Of half a logit for the verdict, the hyperbolic tangent is twice the confidence in it, less one.
    """

    middle: np.ndarray  # [examples]
    spread: np.ndarray
    confidence: np.ndarray  # half of the hyperbolic tangent without the knockout
    least: np.ndarray  # an example with less is Question-Anchored

    @classmethod
    def of(cls, clean: np.ndarray, changed: np.ndarray, logits: str) -> "_Shifted":
        """By the fitted shift, less the common part."""
        level, slope, left = fit_shift(clean, changed)
        common = {
            "measured": level + slope * clean,
            "recentred": slope * (clean - clean.mean()),
            "residual": 0.0,
        }
        half = np.where(clean >= 0, 0.5, -0.5)
        # What `is_question_anchored` says: a verdict flips, or what is left falls. Zero is a verdict of hallucinated.
        none = np.where(clean >= 0, 0.0, np.finfo(np.float32).smallest_subnormal)
        least = half * clean if logits == "residual" else none
        parts = (half * (clean + common[logits]), half * left.std(), np.tanh(half * clean) / 2, least)
        return cls(*(part.astype(np.float32) for part in parts))

    def draw(self, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Who is Question-Anchored, 0 or 1, and the change of confidence: [simulations, examples] each."""
        left = noise * self.spread
        left += self.middle
        question = (left < self.least).astype(np.float32)
        change = np.tanh(left, out=left)
        change *= 0.5
        change -= self.confidence
        return question, change


def _group_means(question: np.ndarray, change: np.ndarray) -> np.ndarray:
    """Of the Question-Anchored and of the other examples, [2, simulations]; NaN where there are none."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.stack([np.einsum("ij,ij->i", group, change) / group.sum(1) for group in (question, 1 - question)])


def agreement(roles: list[RoleResult], layer: int, resamples: Resamples) -> dict[str, float | None]:
    """Do the two prompts of `honest` agree on the anchors, and on delta P, at a layer? Averaged over repeats."""
    labels = np.stack([role.question_anchored[:, layer] for role in roles], axis=1)  # [repeats, prompts, examples]
    changes = np.stack([role.delta_p[:, layer] for role in roles], axis=1)
    share_learnt = roles[0].share_learnt
    found = (
        *_over_repeats(_kappa, labels, resamples, share_learnt),
        *_over_repeats(_correlation, changes, resamples, share_learnt),
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
        np.where(before >= 0, 1.0, -1.0) * fit_shift(before, after)[2]
        for before, after in zip(clean, changed, strict=True)
    ]
    return np.mean(signed, axis=0)


def _kappa(labels: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Cohen's kappa of two labellings [2, examples] in each resample: [resamples]."""
    first, second, same = _drawn_means(drawn, np.stack([*labels, labels[0] == labels[1]]))
    by_chance = first * second + (1 - first) * (1 - second)
    with np.errstate(invalid="ignore", divide="ignore"):
        return (same - by_chance) / (1 - by_chance)


def _correlation(values: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Pearson's correlation of two rows in each resample: [resamples]."""
    first, second = values - values.mean(1, keepdims=True)
    parts = np.stack([first, second, first * second, first**2, second**2])
    one, two, product, one_square, two_square = _drawn_means(drawn, parts)
    variances = (one_square - one**2).clip(min=0) * (two_square - two**2).clip(min=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(variances > 0, (product - one * two) / np.sqrt(variances), np.nan)


def _drawn_means(drawn: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The mean of each row in each resample: [rows, resamples]."""
    few = max(1, CACHED // drawn.shape[1])  # resamples at a time, because they are widened
    sums = [drawn[start : start + few].astype(np.float64) @ rows.T for start in range(0, len(drawn), few)]
    return np.concatenate(sums).T / drawn.sum(1)


def _over_repeats(
    statistic: Callable[[np.ndarray, np.ndarray], np.ndarray],
    values: np.ndarray,
    resamples: Resamples,
    share_learnt: float,
) -> tuple[float | None, float | None, float | None]:
    """The mean over repeats of a statistic of values [repeats, 2, examples], with its interval; None: cannot be said.

    Its probes learnt from `share_learnt` of the examples.
    """
    once = np.ones((1, resamples.weights.shape[1]))
    each = np.stack([statistic(of_repeat, once) for of_repeat in values])
    if not np.isfinite(each).all():
        return None, None, None
    mean, moved = resamples.over_repeats(each, share_learnt)
    drawn = np.mean([statistic(of_repeat, resamples.weights) for of_repeat in values], axis=0)
    return float(mean[0]), *ends(drawn + moved[:, 0])
