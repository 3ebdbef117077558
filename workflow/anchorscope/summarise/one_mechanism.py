"""What would be seen if there were one mechanism and not two pathways, and what speaks for two kinds of examples.

Under one mechanism (the null N2) the knockout shifts every example's logit by a draw from one normal distribution,
whose mean depends on the clean logit along a line. Fitted to a run, it has that run's mean, spread and dependence, but
not two kinds of examples.

Two kinds would show at the reference layer of a component and position: do the two prompts agree, and do logit shifts
have one hump?
"""

from collections.abc import Callable

import numpy as np

from anchorscope.probe.quality import delta_p
from anchorscope.summarise.bootstrap import Resamples, ends
from anchorscope.summarise.dip import dip_test
from anchorscope.summarise.grouping import RoleResult, fit_lines, is_question_anchored

SHAPE = ("dip", "dip_p")
AGREEMENT = tuple(f"{name}{end}" for name in ("kappa", "correlation") for end in ("", "_low", "_high"))
CACHED = 2**17  # numbers that a core keeps at hand while it computes with them
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
        before = clean[:, repeat, layer].astype(np.float32)
        shifts = [
            _shift(*both, logits) for both in zip(clean[:, repeat, layer], changed[:, repeat, layer], strict=True)
        ]
        for start in range(0, simulations, few):
            some = slice(start, start + few)
            moved = [middle + spread * noise[prompt, some] for prompt, (middle, spread) in enumerate(shifts)]
            means = [_role_means(before, moved, labels, measures, logits) for labels, measures in roles]
            found[:, some, repeat, layer] = np.mean(means, axis=0)
    question, answer = found.mean(2)
    return {"question": question, "answer": answer, "gap": question - answer}


def _shift(clean: np.ndarray, changed: np.ndarray, logits: str) -> tuple[np.ndarray, np.float32]:
    """Middle [examples] and spread of logits that a knockout moves by the fitted shift, less the common part."""
    level, slope, left = fit_shift(clean, changed)
    common = {
        "measured": level + slope * clean,
        "recentred": slope * (clean - clean.mean()),
        "residual": 0.0,
    }
    return (clean + common[logits]).astype(np.float32), np.float32(left.std())


def _role_means(clean: np.ndarray, moved: list[np.ndarray], labels: int, measures: int, logits: str) -> np.ndarray:
    """Mean delta P of the Question-Anchored and of the other examples, [2, simulations]; NaN where there are none."""
    question = is_question_anchored(clean[labels], moved[labels], logits)
    change = delta_p(clean[measures], moved[measures])
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.stack([(change * group).sum(1) / np.count_nonzero(group, axis=1) for group in (question, ~question)])


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
    total = drawn.sum(1)
    first, second, same = (drawn @ part / total for part in (*labels.astype(float), labels[0] == labels[1]))
    by_chance = first * second + (1 - first) * (1 - second)
    with np.errstate(invalid="ignore", divide="ignore"):
        return (same - by_chance) / (1 - by_chance)


def _correlation(values: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Pearson's correlation of two rows in each resample: [resamples]."""
    first, second = values - values.mean(1, keepdims=True)
    total = drawn.sum(1)
    one, two, product, one_square, two_square = (
        drawn @ part / total for part in (first, second, first * second, first**2, second**2)
    )
    variances = (one_square - one**2).clip(min=0) * (two_square - two**2).clip(min=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(variances > 0, (product - one * two) / np.sqrt(variances), np.nan)


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
    each = np.array([statistic(of_repeat, once)[0] for of_repeat in values])
    mean = float(each.mean())
    if not np.isfinite(mean):
        return None, None, None
    drawn = np.mean([statistic(of_repeat, resamples.weights) for of_repeat in values], axis=0)
    return mean, *ends(drawn + resamples.factors(share_learnt) @ (each - mean))
