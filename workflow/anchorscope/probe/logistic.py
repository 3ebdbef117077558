"""Linear probes, all at once: L2-regularised logistic regression for many layers and training sets in one batch.

A probe minimises   sum_i c_i * logloss(y_i, w.z_i + b)  +  strength/2 * |w|^2
where z are the features standardised on its training examples, and c_i is zero for all others and gives both classes
the same total. The intercept b is not penalised.

Every training set reads the same features, so that one matrix product serves all probes of a layer: what differs
between them, mean, scale and examples, is applied to the weights and to the slopes, never to the features. Newton's
method; its steps are found by conjugate gradients, for all probes at once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import softplus

TOLERANCE = 1e-6  # root mean square of the objective's slopes along weights and intercept; less for weak penalties
NEWTON_STEPS = 60
GRADIENT_STEPS = 400  # of conjugate gradients, in one step of Newton's
HALVINGS = 20  # of a step that raises the objective
STALLED = 4  # Newton steps without progress after which rounding is taken to be all that is left
JITTER = 1e-5  # added to the features' inner products, which are singular once centred, or where examples are alike
SOME = 256  # examples or features that are worked on at a time, where a copy of all would take too much memory
CONSTANT = 1e-6  # a feature that varies less than this, relative to its mean, is constant


@dataclass(frozen=True)
class Probes:
    """logit = x . weight + bias, in the units of the features."""

    weight: Tensor  # [layers, probes, width]
    bias: Tensor  # [layers, probes]
    converged: Tensor  # [layers, probes], bool

    def logits(self, features: Tensor) -> Tensor:
        """Logits [layers, probes, examples] of features [layers, examples, width]."""
        return torch.baddbmm(self.bias[..., None], self.weight, features.mT.to(self.weight.dtype))


def fit(
    features: Tensor,  # [layers, examples, width]
    labels: Tensor,  # [examples], 0 or 1
    train: Tensor,  # [probes, examples], bool: whom a probe sees
    strengths: Tensor,  # [layers, probes]
) -> Probes:
    """Fit one probe a layer and training set, in the dtype of the features."""
    labels, strengths = labels.to(features.dtype), strengths.to(features.dtype)
    centre = features.mean(1)  # [layers, width]; keeps the products below free of large common terms
    problem = _Problem(_with_ones(features, centre), labels, class_weights(labels, train), strengths)
    mean, inverse = _scaling(problem.features[..., :-1], centre, train)
    problem = replace(problem, mean=_pad(mean, 0.0), inverse=_pad(inverse, 1.0))
    at, converged = _newton(problem, torch.zeros_like(problem.mean), TOLERANCE)
    weight = at[..., :-1] * inverse
    return Probes(weight, at[..., -1] - (weight * (mean + centre[:, None])).sum(-1), converged)


def path(
    features: Tensor, labels: Tensor, train: Tensor, groups: Sequence[Sequence[float]], tolerance: float
) -> Iterator[Tensor]:
    """Train on `train` [examples] and yield the logits [layers, strengths, others] of all others, a group at once.

    A group starts where the last of the group before ended. Where there are more features than training examples, the
    standardised features are replaced by as many as there are examples, with the same inner products (a Cholesky factor
    of these): the logits are the same, and a step is cheaper.
    """
    count = int(train.sum())
    mean = (train.to(features.dtype)[None] / count) @ features  # [layers, 1, width]
    known = features[:, train].sub_(mean)
    spread = torch.linalg.vector_norm(known, dim=1, keepdim=True) / count**0.5
    inverse = torch.where(spread <= CONSTANT * mean.abs(), 0.0, 1 / spread)
    wide = features.shape[2] > count
    others = features[:, ~train].sub_(mean).mul_(inverse)
    known.mul_(inverse)
    if wide:
        others = others @ known.mT  # inner products [layers, other examples, training examples]
        inner = torch.ones(len(known), count, count + 1, dtype=known.dtype, device=known.device)
        products = torch.matmul(known, known.mT, out=inner[..., :-1])
        products.diagonal(dim1=1, dim2=2).add_(JITTER * features.shape[2])
        known = products.copy_(torch.linalg.cholesky(products))
    else:
        inner = _with_ones(known)
    labels = labels[train].to(features.dtype)
    weights = class_weights(labels, torch.ones(1, count, dtype=torch.bool, device=labels.device))
    at = torch.zeros_like(inner[:, :1])
    for strengths in groups:
        penalties = torch.tensor(strengths, dtype=at.dtype, device=at.device).expand(len(at), -1)
        start = at[:, -1:].repeat(1, len(strengths), 1)
        at, _ = _newton(_Problem(inner, labels, weights.expand(len(strengths), -1), penalties), start, tolerance)
        weight = at[..., :-1].mT
        weight = torch.linalg.solve_triangular(known.mT, weight, upper=True) if wide else weight
        yield (others @ weight).mT + at[..., -1:]


def _with_ones(features: Tensor, centre: Tensor | None = None) -> Tensor:
    """Features [layers, examples, width + 1], less their centre [layers, width]; the last one is the intercept's."""
    found = torch.ones(*features.shape[:2], features.shape[2] + 1, dtype=features.dtype, device=features.device)
    if centre is None:
        found[..., :-1] = features
    else:
        torch.sub(features, centre[:, None], out=found[..., :-1])
    return found


def _pad(values: Tensor, last: float) -> Tensor:
    """One more value at the end, the intercept's."""
    return torch.nn.functional.pad(values, (0, 1), value=last)


def class_weights(labels: Tensor, train: Tensor) -> Tensor:
    """Weights [probes, examples]: one half for each class of a training set, nothing for the others."""
    inside = train.to(labels.dtype)
    weights = torch.zeros_like(inside)
    for members in (inside * labels, inside * (1 - labels)):
        weights += members / (2 * members.sum(1, keepdim=True))
    return weights


def log_loss(logits: Tensor, labels: Tensor, among: Tensor) -> Tensor:
    """Class-balanced log loss [layers, probes] of logits [layers, probes, examples] over `among` [probes, examples]."""
    labels = labels.to(logits.dtype)
    return (class_weights(labels, among) * softplus((1 - 2 * labels) * logits)).sum(-1)


def _scaling(centred: Tensor, centre: Tensor, train: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and inverse scale of the features over each training set, [layers, probes, width]; 0 for constant ones."""
    share = train.to(centred.dtype) / train.sum(1, keepdim=True)
    mean = share @ centred
    parts = centred.split(SOME, dim=2)  # a few features at a time: their squares take as much memory as they do
    variance = torch.cat([share @ part.square() for part in parts], dim=2).sub_(mean.square())
    # A difference of large numbers says little; for a training set far from the centre it is taken from the data.
    for layer, feature in (variance < mean.square() / 100).any(1).nonzero().tolist():
        values = centred[layer, :, feature].double()
        variance[layer, :, feature] = torch.stack([values[inside].var(correction=0) for inside in train])
    scale = variance.clamp_(min=0).sqrt_()
    constant = scale <= CONSTANT * (mean.abs() + centre[:, None].abs())
    return mean, torch.where(constant, 0.0, 1 / scale)


@dataclass(frozen=True)
class _Problem:
    """Points and slopes are [layers, probes, width + 1]: weights of standardised features, and the intercept."""

    features: Tensor  # [layers, examples, width + 1]
    labels: Tensor  # [examples]
    weights: Tensor  # [probes, examples]
    strengths: Tensor  # [layers, probes]
    mean: Tensor | None = (
        None  # [layers, probes, width + 1], of each training set; None where features are standardised
    )
    inverse: Tensor | None = None  # [layers, probes, width + 1]

    def logits(self, at: Tensor) -> Tensor:
        """[layers, probes, examples]"""
        if self.mean is None:
            return torch.bmm(at, self.features.mT)
        scaled = at * self.inverse
        return torch.baddbmm(-_dot(scaled, self.mean)[..., None], scaled, self.features.mT)

    def back(self, slopes: Tensor, at: Tensor) -> Tensor:
        """From slopes along logits [layers, probes, examples] to those along the weights, the penalty's included."""
        raw = torch.bmm(slopes, self.features)
        if self.mean is not None:
            raw.addcmul_(slopes.sum(-1, keepdim=True), self.mean, value=-1).mul_(self.inverse)
        raw[..., :-1].addcmul_(self.strengths[..., None], at[..., :-1])
        return raw

    def objective(self, logits: Tensor, at: Tensor) -> Tensor:
        """[layers, probes]"""
        loss = (self.weights * softplus((1 - 2 * self.labels) * logits)).sum(-1)
        return loss + self.strengths / 2 * at[..., :-1].square().sum(-1)


def _dot(one: Tensor, other: Tensor) -> Tensor:
    """Inner products [layers, probes]."""
    return torch.linalg.vecdot(one, other)


def _newton(problem: _Problem, at: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
    """The minimum, and which probes reached it, [layers, probes]."""
    limit = (tolerance * problem.strengths.clamp(0.1, 1.0)).square() * at.shape[-1]
    logits = problem.logits(at)
    first = least = since = None
    for _ in range(NEWTON_STEPS):
        chance = torch.sigmoid(logits)
        slope = problem.back(problem.weights * (chance - problem.labels), at)
        size = _dot(slope, slope)
        converged = size < limit
        if first is None:
            first, least, since = size, size, torch.zeros_like(size)
        since = torch.where(size < 0.5 * least, 0.0, since + 1)
        least = torch.minimum(least, size)
        active = ~converged & (since < STALLED)
        if not active.any():
            break
        curvature = problem.weights * (chance * (1 - chance))
        precision = (size / first).sqrt().clamp(max=0.25) / 4  # sharper as the end comes near
        step = _solve(problem, curvature, slope, size * precision, active)
        at, logits = _search(problem, at, logits, step, slope, active)
    return at, converged


def _solve(problem: _Problem, curvature: Tensor, slope: Tensor, until: Tensor, active: Tensor) -> Tensor:
    """Conjugate gradients: the step at which the quadratic model has no slope, to a squared length of `until`."""
    step, left = torch.zeros_like(slope), -slope
    direction, size = left, _dot(left, left)
    tiny = torch.finfo(size.dtype).tiny
    for _ in range(GRADIENT_STEPS):
        bent = problem.back(curvature * problem.logits(direction), direction)
        length = torch.where(active, size / _dot(direction, bent).clamp(min=tiny), 0.0)[..., None]
        step, left = torch.addcmul(step, length, direction), torch.addcmul(left, length, bent, value=-1)
        before, size = size, _dot(left, left)
        active = active & (size > until)
        if not active.any():
            break
        direction = torch.addcmul(left, (size / before.clamp(min=tiny))[..., None], direction)
    return step


def _search(
    problem: _Problem, at: Tensor, logits: Tensor, step: Tensor, slope: Tensor, active: Tensor
) -> tuple[Tensor, Tensor]:
    """Go the step, or half of it, or a quarter ... until the objective falls as it should; logits go along."""
    before, falling = problem.objective(logits, at), _dot(slope, step)
    slack = 8 * torch.finfo(before.dtype).eps * before.abs()
    change = problem.logits(step)
    length = active.to(before.dtype)
    for _ in range(HALVINGS):
        there, moved = (torch.addcmul(old, length[..., None], new) for old, new in ((at, step), (logits, change)))
        worse = active & (problem.objective(moved, there) > before + 1e-4 * length * falling + slack)
        if not worse.any():
            break
        length = torch.where(worse, length / 2, length)
    return there, moved
