"""What a probe says about an example before and after the knockout."""

import numpy as np


def delta_p(clean: np.ndarray, changed: np.ndarray) -> np.ndarray:
    """How far the probe's confidence in its own clean verdict rises or falls, in percentage points."""
    sign = _verdict(clean)
    return 100 * (sigmoid(sign * changed) - sigmoid(sign * clean))


def delta_logit(clean: np.ndarray, changed: np.ndarray) -> np.ndarray:
    """How far the logit moves towards the probe's own clean verdict (above zero) or away from it."""
    return _verdict(clean) * (changed - clean)


def _verdict(clean: np.ndarray) -> np.ndarray:
    """1 for hallucinated, -1 for right, in the logits' own precision."""
    return np.where(clean >= 0, 1, -1).astype(clean.dtype)


def flips(clean: np.ndarray, changed: np.ndarray) -> np.ndarray:
    """Whether the probe's verdict changes."""
    return (clean >= 0) != (changed >= 0)


def sigmoid(logits: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(logits / 2))
