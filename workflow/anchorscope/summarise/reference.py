"""The reference layers: those whose clean probe ranks within one standard error of the best, chosen in each resample.

The curve of AUC against layer is flat at its top. A label at its very highest layer would hang on rounding.
"""

from dataclasses import dataclass

import numpy as np

from anchorscope.probe.quality import auc
from anchorscope.summarise.bootstrap import Resamples
from anchorscope.summarise.curves import Curve, average_curves, curves
from anchorscope.summarise.grouping import RoleResult

RARE = 0.01  # of the resamples: a layer that fewer choose is left out


@dataclass(frozen=True)
class ReferenceLayers:
    """Which layers are within reach of the best one."""

    chosen: np.ndarray  # [layers], bool
    drawn: np.ndarray  # [draws, layers], bool: by the AUC of each resample


def reference_layers(clean: np.ndarray, hallucinated: np.ndarray, resamples: Resamples) -> ReferenceLayers:
    """From clean logits [repeats, layers, examples] of the probes behind P."""
    area = np.mean([auc(logits, hallucinated) for logits in clean], axis=0)
    drawn = np.mean([resampled_auc(logits, hallucinated, resamples.weights) for logits in clean], axis=0)
    best = int(np.argmax(area))
    reach = float(drawn[:, best].std())
    return ReferenceLayers(area >= area[best] - reach, drawn >= drawn.max(1, keepdims=True) - reach)


def resampled_auc(logits: np.ndarray, positive: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Area under the ROC curve [draws, layers] of logits [layers, examples], in resamples [draws, examples]."""
    pairs = (weights * positive).sum(1) * (weights * ~positive).sum(1)
    return np.stack([_wins(row, positive, weights) / pairs for row in logits], axis=1)


def _wins(row: np.ndarray, positive: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """How many pairs of a positive and a negative are in order, a tie counting half: [draws]."""
    order = np.argsort(row, kind="stable")
    drawn = weights[:, order]
    above, below = drawn * positive[order], drawn * ~positive[order]
    starts = np.flatnonzero(np.diff(row[order], prepend=-np.inf))
    if len(starts) < len(row):
        above, below = (np.add.reduceat(some, starts, axis=1) for some in (above, below))
    return np.einsum("ij,ij->i", above, below.cumsum(1) - below / 2)


def reference_curves(results: list[RoleResult], resamples: Resamples, layers: ReferenceLayers) -> dict[str, Curve]:
    """The curve of each anchor with labels at a reference layer, averaged over the layers that are one."""
    used = np.flatnonzero(layers.chosen | (layers.drawn.mean(0) > RARE))
    by_layer = [curves([result.labelled_at(int(layer)) for result in results], resamples) for layer in used]
    return {
        anchor: average_curves([found[anchor] for found in by_layer], layers.chosen[used], layers.drawn[:, used])
        for anchor in by_layer[0]
    }
