"""What `flip` and `replicate` would show if there were one mechanism and not two pathways (the null N2).

Under N2 the knockout shifts every example's logit by a draw from one normal distribution, whose mean depends on the
clean logit along a line. Fitted to a run, it has that run's mean, spread and dependence, but not two kinds of examples.
"""

from dataclasses import dataclass

import numpy as np

from anchorscope.probe.verdicts import delta_p, flips


@dataclass(frozen=True)
class Shift:
    """logit under knockout - clean logit  =  level + slope * clean logit + spread * standard normal."""

    level: float
    slope: float
    spread: float

    def residuals(self, clean: np.ndarray, changed: np.ndarray) -> np.ndarray:
        """The part of each example's shift that the line does not explain."""
        return changed - clean - self.level - self.slope * clean


def fit_shift(clean: np.ndarray, changed: np.ndarray) -> Shift:
    """Least squares on one layer's logits [examples]; no slope where all clean logits are equal."""
    shift = changed - clean
    centred = clean - clean.mean()
    variation = float(centred @ centred)
    slope = float(centred @ shift) / variation if variation > 0 else 0.0
    level = float(shift.mean()) - slope * float(clean.mean())
    residuals = shift - level - slope * clean
    return Shift(level, slope, float(residuals.std()))


def simulate_flip(clean: np.ndarray, changed: np.ndarray, draws: int, seed: int) -> dict[str, np.ndarray]:
    """Group means [draws, layers] of delta P under `flip`, with shifts drawn from the fit to logits [layers, examples].

    The same standard normal numbers serve every layer.
    """
    noise = np.random.default_rng(seed).standard_normal((draws, clean.shape[1]))
    by_layer = []
    for before, after in zip(clean, changed, strict=True):
        moved = _moved(before, after, noise)
        by_layer.append(_group_means(flips(before, moved), delta_p(before, moved)))
    return _with_gap(np.stack(by_layer, axis=-1))


def simulate_replicate(
    clean: np.ndarray, changed: np.ndarray, reference: int, draws: int, seed: int
) -> dict[str, np.ndarray]:
    """Group means [draws, layers] of delta P under `replicate`, from logits [2 prompts, layers, examples].

    Each prompt has its own shifts. One prompt labels at the reference layer and the other measures, then the other way
    round; the result is the mean of both.
    """
    noise = np.random.default_rng(seed).standard_normal((2, draws, clean.shape[2]))
    by_role = []
    for labels, measures in ((0, 1), (1, 0)):
        before = clean[labels, reference]
        flipped = flips(before, _moved(before, changed[labels, reference], noise[labels]))
        by_layer = []
        for before, after in zip(clean[measures], changed[measures], strict=True):
            by_layer.append(_group_means(flipped, delta_p(before, _moved(before, after, noise[measures]))))
        by_role.append(np.stack(by_layer, axis=-1))
    return _with_gap(np.mean(by_role, axis=0))


def _moved(clean: np.ndarray, changed: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Logits [draws, examples] under a knockout that moves every example by the fitted shift."""
    shift = fit_shift(clean, changed)
    return clean + shift.level + shift.slope * clean + shift.spread * noise


def _group_means(question: np.ndarray, change: np.ndarray) -> np.ndarray:
    """Mean change of the Question-Anchored and of the other examples, [2, draws]; NaN where there are none."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.stack([(mask * change).sum(1) / mask.sum(1) for mask in (question, ~question)])


def _with_gap(means: np.ndarray) -> dict[str, np.ndarray]:
    question, answer = means
    return {"question": question, "answer": answer, "gap": question - answer}
