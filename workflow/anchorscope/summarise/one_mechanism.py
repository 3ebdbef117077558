"""What `flip` and `replicate` would show if there were one mechanism and not two pathways (the null N2).

Under N2 the knockout shifts every example's logit by a draw from one normal distribution, whose mean depends on the
clean logit along a line. Fitted to a run, it has that run's mean, spread and dependence, but not two kinds of examples.
"""

from dataclasses import dataclass

import numpy as np

from anchorscope.probe.quality import delta_p
from anchorscope.summarise.grouping import is_question_anchored
from anchorscope.summarise.push import fit_lines


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
    level, slope = (float(value[0]) for value in fit_lines(clean, changed - clean, np.ones(clean.shape)))
    residuals = changed - clean - level - slope * clean
    return Shift(level, slope, float(residuals.std()))


def simulate(
    clean: np.ndarray, changed: np.ndarray, rule: str, logits: str, draws: int, seed: int
) -> dict[str, np.ndarray]:
    """Group means [draws, layers] of delta P under a rule, from logits [prompts, repeats, layers, examples].

    Under `flip`, the first prompt labels and measures. Under `replicate`, each prompt has its own shifts; one labels
    and the other measures, then the other way round, and the result is the mean of both. Repeats are averaged. The same
    standard normal numbers serve every layer and repeat: they stand for the examples' own forward passes. Single
    precision is far finer than the draws are.
    """
    noise = np.random.default_rng(seed).standard_normal((len(clean), draws, clean.shape[-1]), dtype=np.float32)
    roles = {"flip": [(0, 0)], "replicate": [(0, 1), (1, 0)]}[rule]
    by_repeat = []
    for repeat in range(clean.shape[1]):
        by_layer = []
        for layer in range(clean.shape[2]):
            moved = [
                _moved(clean[prompt, repeat, layer], changed[prompt, repeat, layer], noise[prompt], logits)
                for prompt in {prompt for role in roles for prompt in role}
            ]
            before = clean[:, repeat, layer]
            by_layer.append(
                np.mean([_role_means(before, moved, labels, measures, logits) for labels, measures in roles], axis=0)
            )
        by_repeat.append(np.stack(by_layer, axis=-1))
    question, answer = np.mean(by_repeat, axis=0)
    return {"question": question, "answer": answer, "gap": question - answer}


def _moved(clean: np.ndarray, changed: np.ndarray, noise: np.ndarray, logits: str) -> np.ndarray:
    """Logits [draws, examples] under a knockout that moves every example by the fitted shift, less the common part."""
    shift = fit_shift(clean, changed)
    common = {
        "measured": shift.level + shift.slope * clean,
        "recentred": shift.slope * (clean - clean.mean()),
        "residual": 0.0,
    }
    return (clean + common[logits]).astype(np.float32) + np.float32(shift.spread) * noise


def _role_means(clean: np.ndarray, moved: list[np.ndarray], labels: int, measures: int, logits: str) -> np.ndarray:
    """Mean delta P of the Question-Anchored and of the other examples, [2, draws]; NaN where there are none."""
    before = clean.astype(np.float32)
    question = is_question_anchored(before[labels], moved[labels], logits)
    change = delta_p(before[measures], moved[measures])
    count, inside = np.count_nonzero(question, axis=1), np.where(question, change, 0).sum(1, dtype=np.float64)
    total = change.sum(1, dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.stack([inside / count, (total - inside) / (change.shape[1] - count)])
