"""A probe as scikit-learn fits it."""

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

from anchorscope.probe.logistic import FittedProbes
from rounding import of_probes


class PlainProbe:
    """Scikit-learn's regression on standardised features, classes weighted equally, as a function to logits."""

    def __init__(self, features: np.ndarray, labels: np.ndarray, strength: float, rows: np.ndarray):
        """`rows` are numbers of examples; one may be there several times."""
        seen = features[rows].astype(float)
        self.mean, scale = seen.mean(0), seen.std(0)
        self.scale = np.where(scale > 1e-6 * np.abs(self.mean), scale, np.inf)
        self.model = LogisticRegression(
            C=1 / (strength * len(rows)), class_weight="balanced", tol=1e-10, max_iter=10_000
        ).fit((seen - self.mean) / self.scale, labels[rows])
        self.learnt = (features, labels, np.bincount(rows, minlength=len(labels)), strength)

    def rounding(
        self, dtype: torch.dtype = torch.float32, said_of: np.ndarray | None = None, inner: bool = False
    ) -> float:
        """Of the logits of the same probe as the library fits it, as `of_probes` says."""
        weight = self.model.coef_[0] / self.scale
        probes = FittedProbes(
            torch.tensor(weight, dtype=dtype)[None, None],
            torch.tensor(self.model.intercept_ - self.mean @ weight, dtype=dtype)[None],
            converged=torch.ones(1, 1),
        )
        features, labels, counts, strength = self.learnt
        learnt = (torch.from_numpy(features)[None], torch.from_numpy(labels), torch.from_numpy(counts)[None])
        others = None if said_of is None else torch.from_numpy(said_of)[None]
        return of_probes(probes, *learnt, strengths=torch.tensor([[strength]]), said_of=others, inner=inner)

    def __call__(self, features: np.ndarray) -> np.ndarray:
        return self.model.decision_function((features.astype(float) - self.mean) / self.scale)
