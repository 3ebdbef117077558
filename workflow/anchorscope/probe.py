"""Linear probes, all at once: L2-regularised logistic regression for many feature sets in one batch.

A probe minimises   mean_i c_i * logloss(y_i, w.z_i + b)  +  strength/2 * |w|^2
where z are the features standardised on the training examples and c_i weighs both classes equally.
The intercept b is not penalised. Newton's method in the space of examples: w = Z^T a, so that a
step costs a Cholesky factor of [examples, examples], however wide the features are.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

TOLERANCE = 1e-6  # largest slope of the objective along a training logit or the intercept, times the examples
MAX_STEPS = 100
MIN_CURVATURE = 1e-12  # keeps a perfectly classified example's row of the Newton system finite


@dataclass(frozen=True)
class Probes:
    """One probe a batch entry: logit = ((x - mean) / scale) . weight + bias."""

    mean: Tensor  # [batch, width]
    scale: Tensor  # [batch, width]
    weight: Tensor  # [batch, width]
    bias: Tensor  # [batch]
    converged: Tensor  # [batch], bool

    def logits(self, features: Tensor) -> Tensor:
        """Logits [batch, examples] of features [batch, examples, width]."""
        direction = self.weight / self.scale
        offset = self.bias - (self.mean * direction).sum(-1)
        return torch.einsum("bnw,bw->bn", features.double(), direction) + offset[:, None]


def fit(features: Tensor, labels: Tensor, strengths: Tensor) -> Probes:
    """Fit probes to features [batch, examples, width], labels [examples] in {0, 1}, strengths [batch]."""
    scaled, mean, scale = standardise(features.double())
    dual, bias, converged = solve(scaled @ scaled.mT, labels, strengths)
    weight = torch.einsum("bnw,bn->bw", scaled, dual)
    return Probes(mean, scale, weight, bias, converged)


def standardise(features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Zero mean and unit variance over the examples; a constant feature stays at zero."""
    mean = features.mean(dim=1)
    centred = features - mean[:, None]
    scale = centred.square().mean(dim=1).sqrt()
    noise = 8 * torch.finfo(features.dtype).eps * mean.abs().clamp(min=1e-6)  # rounding of a constant feature
    scale = torch.where(scale > noise, scale, torch.inf)
    return centred / scale[:, None], mean, scale


def solve(
    gram: Tensor,
    labels: Tensor,
    strengths: Tensor,
    start: tuple[Tensor, Tensor] | None = None,
    tolerance: float = TOLERANCE,
) -> tuple[Tensor, Tensor, Tensor]:
    """Dual weights [batch, examples], biases [batch] and convergence [batch] for Gram matrices [batch, n, n].

    Computed in the Gram matrices' own dtype, from `start` where a nearby solution is known.
    """
    labels, strengths = labels.to(gram.dtype), strengths.to(gram.dtype)
    weights = class_weights(labels) / len(labels)  # [n], sums to one
    dual, bias = start or (torch.zeros_like(gram[:, :, 0]), torch.zeros_like(gram[:, 0, 0]))
    converged = torch.zeros(len(gram), dtype=torch.bool, device=gram.device)
    for _ in range(MAX_STEPS):
        logits = (gram @ dual[..., None])[..., 0] + bias[:, None]
        chance = torch.sigmoid(logits)
        slope = weights * (chance - labels)  # d loss / d logit
        residual = slope + strengths[:, None] * dual  # zero at the optimum, up to the Gram's null space
        converged = torch.maximum(residual.abs().amax(1), slope.sum(1).abs()) * len(labels) < tolerance
        if converged.all():
            break
        new_dual, new_bias = _newton(gram, logits, chance, slope, weights, strengths)
        step = _step_size(gram, labels, weights, strengths, (dual, bias), (new_dual, new_bias))
        step = torch.where(converged, 0.0, step)
        dual = dual + step[:, None] * (new_dual - dual)
        bias = bias + step * (new_bias - bias)
    return dual, bias, converged


def _newton(gram: Tensor, logits: Tensor, chance: Tensor, slope: Tensor, weights: Tensor, strengths: Tensor):
    """The minimiser of the objective's quadratic model at `logits`."""
    root = (weights * chance * (1 - chance)).clamp(min=MIN_CURVATURE).sqrt()
    system = root[:, :, None] * gram * root[:, None, :]
    system.diagonal(dim1=1, dim2=2).add_(strengths[:, None])
    factor = torch.linalg.cholesky(system)
    right = torch.stack([root * logits - slope / root, root], dim=-1)  # working response, and ones for the intercept
    solved = root[..., None] * torch.cholesky_solve(right, factor)
    bias = solved[..., 0].sum(1) / solved[..., 1].sum(1)
    return solved[..., 0] - bias[:, None] * solved[..., 1], bias


def _step_size(gram, labels, weights, strengths, old, new) -> Tensor:
    """The largest of 1, 1/2, 1/4 ... that does not raise the objective, [batch]."""

    def objective(dual: Tensor, bias: Tensor) -> Tensor:
        shift = (gram @ dual[..., None])[..., 0]
        loss = torch.nn.functional.softplus((1 - 2 * labels) * (shift + bias[:, None]))
        return (weights * loss).sum(1) + strengths / 2 * (dual * shift).sum(1)

    before = objective(*old)
    step = torch.ones_like(before)
    for _ in range(30):
        after = objective(old[0] + step[:, None] * (new[0] - old[0]), old[1] + step * (new[1] - old[1]))
        worse = after > before + 4 * torch.finfo(before.dtype).eps * before.abs()
        if not worse.any():
            break
        step = torch.where(worse, step / 2, step)
    return step


def class_weights(labels: Tensor) -> Tensor:
    """Weights [examples], mean one, that give both classes the same total."""
    positive = (labels > 0.5).double().mean()
    return torch.where(labels > 0.5, 0.5 / positive, 0.5 / (1 - positive)).to(labels.dtype)


def log_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Class-balanced log loss [...] of logits [..., examples]."""
    labels = labels.to(logits.dtype)
    loss = torch.nn.functional.softplus((1 - 2 * labels) * logits)
    return (class_weights(labels) * loss).mean(-1)
