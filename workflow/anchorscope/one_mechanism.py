"""What `flip` would show if there were one mechanism and not two pathways (the null N2).

Under N2 the knockout shifts every example's logit by a draw from one normal distribution, whose mean depends on the
clean logit along a line. Fitted to a run, it has that run's mean, spread and dependence, and no kinds of examples.
"""

from dataclasses import dataclass

import numpy as np

from anchorscope.verdicts import delta_p, flips


@dataclass(frozen=True)
class Shift:
    """logit under knockout - clean logit  =  level + slope * clean logit + spread * standard normal."""

    level: float
    slope: float
    spread: float

    def residuals(self, clean: np.ndarray, changed: np.ndarray) -> np.ndarray:
        """What is left of each example's shift."""
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
    found: dict[str, list[np.ndarray]] = {"question": [], "answer": []}
    for before, after in zip(clean, changed, strict=True):
        shift = fit_shift(before, after)
        moved = before + shift.level + shift.slope * before + shift.spread * noise
        flipped, change = flips(before, moved), delta_p(before, moved)
        for anchor, mask in (("question", flipped), ("answer", ~flipped)):
            with np.errstate(invalid="ignore", divide="ignore"):
                found[anchor].append((mask * change).sum(1) / mask.sum(1))
    means = {anchor: np.stack(columns, axis=1) for anchor, columns in found.items()}
    return {**means, "gap": means["question"] - means["answer"]}
