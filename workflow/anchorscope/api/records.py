"""Arrays that a run's results are read into."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, repr=False)
class Activations:
    """Hidden states of the analysed examples, sorted by id, with the labels beside them."""

    ids: np.ndarray  # [examples], of the questions
    values: np.ndarray  # [examples, width] in float32; of all layers: [layers, examples, width]
    hallucinated: np.ndarray  # [examples], bool: what probes learn to tell
    cluster: np.ndarray  # [examples], the question's subject, or its id: no cluster should be in two folds

    def __repr__(self) -> str:
        shape = " × ".join(map(str, self.values.shape))
        return f"Activations: values {shape}, {self.hallucinated.sum()} of {len(self.ids)} hallucinated"


@dataclass(frozen=True, repr=False)
class ProbeWeights:
    """The probes of one layer: the logit of "hallucinated" is the state times `weight` plus `bias`.

    Each learnt from all folds but one, in one of several draws of folds. The column `fold` of a run's delta, as raw
    rows, says which examples it did not see.
    """

    weight: np.ndarray  # [repeats, folds, width]
    bias: np.ndarray  # [repeats, folds]

    def __repr__(self) -> str:
        return f"ProbeWeights: weight {' × '.join(map(str, self.weight.shape))} (repeats, folds, width)"
