"""Two lines or one: the direct test of two kinds of examples.

Plot each example's logit under the knockout against its clean one. If the knockout does one thing to all, the points
lie along one line. If there are two kinds, they lie along two, one that rises (the evidence is kept) and one that is
flat (it is lost), and an example lies along the same one under both prompts. Each account predicts an example's logit
under one prompt from its clean logit and from what happened to it under the other prompt:

| account | prediction |
|---|---|
| one line | the line |
| by degrees | the line, and a share of the example's distance from the line under the other prompt |
| two lines | each line as often as the other prompt says that the example lies along it |

Lines and spreads are fitted to other examples (the folds), under both prompts. The account that gives held-out logits
the highest likelihood is the better one. Examples that differ by degrees, without two kinds, are the second account.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

STEPS = 200
TOLERANCE = 1e-7  # a fit ends when the log likelihood gains less than this per example
SMALLEST_SPREAD = 0.1  # of the single line's, so that a line cannot collapse onto a few examples
ACCOUNTS = ("one_line", "by_degrees", "two_lines")
# How much better the first account predicts than the second.
COMPARED = {
    "two_over_one": ("two_lines", "one_line"),
    "two_over_degrees": ("two_lines", "by_degrees"),
    "degrees_over_one": ("by_degrees", "one_line"),
}


@dataclass(frozen=True)
class TwoLines:
    """Lines [prompts, kinds]: kept first, lost second. The line of those that are lost is flat."""

    level: np.ndarray
    slope: np.ndarray
    spread: np.ndarray  # [prompts]
    share: np.ndarray  # [kinds]

    def log_densities(self, clean: np.ndarray, changed: np.ndarray) -> np.ndarray:
        """Of logits [prompts, examples] along each line: [prompts, kinds, examples]."""
        middle = self.level[..., None] + self.slope[..., None] * clean[:, None]
        return _log_normal(changed[:, None] - middle, self.spread[:, None, None])


def fit_two_lines(clean: np.ndarray, changed: np.ndarray) -> tuple[TwoLines, float]:
    """Expectation maximisation from logits [prompts, examples]; the lines and their log likelihood.

    It begins with a line that keeps the clean logit and a flat one. An example has one kind under all prompts.
    """
    level = np.stack([np.zeros(len(clean)), changed.mean(1)], axis=1)
    slope = np.stack([np.ones(len(clean)), np.zeros(len(clean))], axis=1)
    single = _fit_line(clean, changed, np.ones(clean.shape[1]))[2].std(1)
    lines = TwoLines(level, slope, np.maximum(single, 1e-9), np.array([0.5, 0.5]))
    before = -np.inf
    for _ in range(STEPS):
        joint = np.log(lines.share)[:, None] + lines.log_densities(clean, changed).sum(0)
        total = np.logaddexp(*joint)
        likelihood = float(total.sum())
        if likelihood - before < TOLERANCE * clean.shape[1]:
            break
        before = likelihood
        belongs = np.exp(joint - total)
        fits = [_fit_line(clean, changed, weights, flat) for weights, flat in zip(belongs, (False, True), strict=True)]
        squares = sum((weights * left**2).sum(1) for weights, (_, _, left) in zip(belongs, fits, strict=True))
        lines = TwoLines(
            level=np.stack([fit[0] for fit in fits], axis=1),
            slope=np.stack([fit[1] for fit in fits], axis=1),
            spread=np.maximum(np.sqrt(squares / clean.shape[1]), SMALLEST_SPREAD * np.maximum(single, 1e-9)),
            share=belongs.mean(1).clip(min=1e-6),
        )
    return lines, likelihood


def _fit_line(
    clean: np.ndarray, changed: np.ndarray, weights: np.ndarray, flat: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Level and slope [prompts] of a weighted least-squares line, and what it leaves [prompts, examples]."""
    weights = weights / max(weights.sum(), 1e-9)
    middle, height = clean @ weights, changed @ weights
    centred = clean - middle[:, None]
    variation = centred**2 @ weights
    slope = 0 * middle if flat else (centred * changed) @ weights / np.maximum(variation, 1e-12)
    level = height - slope * middle
    return level, slope, changed - level[:, None] - slope[:, None] * clean


def held_out(clean: np.ndarray, changed: np.ndarray, folds: np.ndarray) -> dict[str, np.ndarray]:
    """The log likelihood [examples] of each account, for logits [prompts, examples], averaged over prompts.

    Each example is predicted from the other folds' lines.
    """
    found = {account: np.zeros(clean.shape[1]) for account in ACCOUNTS}
    for fold in np.unique(folds):
        test = folds == fold
        predicted = _predict((clean[:, ~test], changed[:, ~test]), (clean[:, test], changed[:, test]))
        for account, densities in predicted.items():
            found[account][test] = densities.mean(0)
    return found


def _predict(train: tuple[np.ndarray, np.ndarray], test: tuple[np.ndarray, np.ndarray]) -> dict[str, np.ndarray]:
    """Log densities [prompts, examples] of the test examples' logits under each account fitted to the training ones."""
    level, slope, left = _fit_line(*train, np.ones(train[0].shape[1]))
    spread = np.maximum(left.std(1), 1e-9)
    missed = test[1] - level[:, None] - slope[:, None] * test[0]
    other = missed[::-1]
    carried = (left[0] * left[1]).mean() / np.maximum((left**2).mean(1), 1e-12)[::-1]  # from the other prompt's
    remaining = np.maximum((left - carried[:, None] * left[::-1]).std(1), 1e-9)
    lines, _ = fit_two_lines(*train)
    densities = lines.log_densities(*test)
    belongs = np.log(lines.share)[:, None] + densities[::-1]  # [prompts, kinds, examples]: as the other prompt says
    belongs = belongs - np.logaddexp(belongs[:, 0], belongs[:, 1])[:, None]
    mixed = belongs + densities
    return {
        "one_line": _log_normal(missed, spread[:, None]),
        "by_degrees": _log_normal(missed - carried[:, None] * other, remaining[:, None]),
        "two_lines": np.logaddexp(mixed[:, 0], mixed[:, 1]),
    }


def bic_gain(clean: np.ndarray, changed: np.ndarray, two: float) -> float:
    """BIC of one line minus that of two, whose log likelihood is `two`: above zero, two describe the logits better."""
    prompts, count = clean.shape
    left = _fit_line(clean, changed, np.ones(count))[2]
    one = _log_normal(left, np.maximum(left.std(1), 1e-9)[:, None]).sum()
    more = prompts + 1  # the flat line's level under each prompt, and a share
    return float(2 * (two - one) - more * np.log(count))


def _log_normal(distance: np.ndarray, spread: np.ndarray) -> np.ndarray:
    return -0.5 * np.log(2 * np.pi) - np.log(spread) - 0.5 * (distance / spread) ** 2


def best_account(gains: Mapping[str, float]) -> str | None:
    """The account that is better than both others beyond chance, by the intervals of a row of `COMPARED`; or None."""
    if gains["two_over_one_low"] > 0 and gains["two_over_degrees_low"] > 0:
        return "two_lines"
    if gains["degrees_over_one_low"] > 0 and gains["two_over_degrees_high"] < 0:
        return "by_degrees"
    if gains["two_over_one_high"] < 0 and gains["degrees_over_one_high"] < 0:
        return "one_line"
    return None
