"""What the knockout does to all examples alike, taken out of their logits.

| logits | |
|---|---|
| measured | as they are |
| recentred | moved back to the clean mean of their layer and probe: the common push is out |
| residual | without what the clean logit predicts along a line: the common push and the common slope are out |

The mean and the line are those of the other folds, so that no example takes out a part of its own change.
"""

import numpy as np

LOGITS = ("measured", "recentred", "residual")


def without_push(clean: np.ndarray, changed: np.ndarray, folds: np.ndarray, logits: str) -> np.ndarray:
    """Logits under the knockout [repeats, layers, examples], without what `logits` takes out.

    Folds are [repeats, examples]. Examples in which nothing was cut are NaN, and take no part.
    """
    if logits == "measured":
        return changed
    common, known = np.zeros_like(changed), np.isfinite(changed)
    shift = np.where(known, changed - clean, 0.0)
    for fold in np.unique(folds):
        own = (folds == fold)[:, None]
        level, slope = fit_lines(clean, shift, known & ~own, sloped=logits == "residual")
        common += np.where(own, level + slope * clean, 0.0)
    return changed - common


def fit_lines(
    clean: np.ndarray, shift: np.ndarray, weights: np.ndarray, sloped: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Level and slope [..., 1] of the shift along the clean logit, by least squares over the last axis.

    No slope where it is not `sloped`, or where all clean logits are equal.
    """
    total = weights.sum(-1, keepdims=True)
    middle, moved = ((values * weights).sum(-1, keepdims=True) / total for values in (clean, shift))
    if not sloped:
        return moved, np.zeros_like(moved)
    centred = (clean - middle) * weights
    variation = (centred * (clean - middle)).sum(-1, keepdims=True)
    slope = np.divide((centred * shift).sum(-1, keepdims=True), variation, where=variation > 0, out=0 * variation)
    return moved - slope * middle, slope
