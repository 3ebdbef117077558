"""One normal distribution or two? Maximum likelihood in one dimension, compared by BIC.

Expectation maximisation is written here because scikit-learn is not a dependency at run time.
"""

from dataclasses import dataclass

import numpy as np

STEPS = 2000
TOLERANCE = 1e-9  # a fit ends when the log likelihood gains less than this per example
SMALLEST_SPREAD = 0.05  # of the sample's own, so that a component cannot collapse onto a few examples


@dataclass(frozen=True)
class TwoNormals:
    """The better of the fits of two components."""

    bic_gain: float  # BIC of one normal distribution minus that of two: above zero, two describe the sample better
    share: float  # of the lower component
    means: tuple[float, float]  # lower first
    spreads: tuple[float, float]


def two_normals(sample: np.ndarray) -> TwoNormals:
    """Fit two components, the best of three starts, and compare them with one."""
    count, spread = len(sample), float(sample.std())
    scaled = (sample - sample.mean()) / spread
    one = float(_log_density(scaled, 0.0, 1.0).sum())
    fits = [_fit(np.sort(scaled), max(1, round(share * count))) for share in (0.2, 0.5, 0.8)]
    likelihood, share, means, spreads = max(fits, key=lambda fit: fit[0])
    order = np.argsort(means)
    back = sample.mean() + spread * means[order]
    return TwoNormals(
        bic_gain=(2 * np.log(count) - 2 * one) - (5 * np.log(count) - 2 * likelihood),
        share=float(share[order][0]),
        means=(float(back[0]), float(back[1])),
        spreads=(float(spread * spreads[order][0]), float(spread * spreads[order][1])),
    )


def _fit(sample: np.ndarray, lower: int) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
    """Log likelihood, shares, means and spreads of two components; at the start, the first has the `lower` lowest."""
    below = np.arange(len(sample)) < lower
    belongs = np.stack([below, ~below]).astype(np.float64)  # [components, examples]
    before = -np.inf
    for _ in range(STEPS):
        size = belongs.sum(1).clip(min=1e-6)  # a component may fade away
        means = belongs @ sample / size
        variances = (belongs * (sample - means[:, None]) ** 2).sum(1) / size
        spreads = np.sqrt(variances).clip(min=SMALLEST_SPREAD)
        share = size / len(sample)
        joint = np.log(share)[:, None] + _log_density(sample, means[:, None], spreads[:, None])
        total = np.logaddexp(*joint)
        belongs = np.exp(joint - total)
        likelihood = float(total.sum())
        if likelihood - before < TOLERANCE * len(sample):
            break
        before = likelihood
    return likelihood, share, means, spreads


def _log_density(sample: np.ndarray, mean: float | np.ndarray, spread: float | np.ndarray) -> np.ndarray:
    return -0.5 * np.log(2 * np.pi) - np.log(spread) - 0.5 * ((sample - mean) / spread) ** 2
