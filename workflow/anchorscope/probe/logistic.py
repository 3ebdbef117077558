"""Linear probes, all at once: L2-regularised logistic regression for many layers and training sets in one batch.

A probe minimises   sum_i c_i * logloss(y_i, w.z_i + b)  +  strength/2 * |w|^2
where z are the features standardised on its training examples, and c_i is zero for all others and gives both classes
the same total. The intercept b is not penalised.

Every training set reads the same features, so one matrix product serves all probes of a layer. What differs between
them, mean, scale and examples, is applied to the weights and to the slopes, never to the features. The solver is
Newton's method; conjugate gradients find its steps, for all probes at once.

Features that are mostly zero, such as words in texts, are only multiplied where they are not.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.linalg import vecdot
from torch.nn.functional import pad, softplus

TOLERANCE = 1e-6  # root mean square of the objective's slopes along weights and intercept; smaller for weak penalties
NEWTON_STEPS = 60
GRADIENT_STEPS = 400  # of conjugate gradients, in one step of Newton's
HALVINGS = 20  # of a step that raises the objective
STALLED = 4  # Newton steps without progress; after so many, only rounding errors can be left
JITTER = 1e-5  # added to the features' inner products: they are singular once centred, or where examples are alike
FEATURES_AT_A_TIME = 256  # a copy of all would take too much memory
CONSTANT = 1e-6  # a feature that varies less than this, relative to its mean, is constant


@dataclass(frozen=True)
class Marks:
    """Features [1, examples, width] that are 1 in a few places, as words are in texts, and 0 elsewhere."""

    rows: Tensor  # the example of each place
    columns: Tensor  # its feature
    count: int  # examples
    width: int
    dtype: torch.dtype = torch.float64

    def __len__(self) -> int:
        return 1

    @property
    def device(self) -> torch.device:
        return self.rows.device

    def to(self, dtype: torch.dtype) -> "Marks":
        return replace(self, dtype=dtype)

    def beside(self, other: "Marks") -> "Marks":
        """With the features of another after these."""
        columns = torch.cat([self.columns, other.columns + self.width])
        return replace(self, rows=torch.cat([self.rows, other.rows]), columns=columns, width=self.width + other.width)

    def with_ones(self) -> "Marks":
        """With a last feature that every example has: the intercept's."""
        everyone = torch.arange(self.count)
        return self.beside(Marks(everyone, torch.zeros_like(everyone), self.count, width=1))

    def among(self, examples: Tensor) -> "Marks":
        """Of some examples, [examples] bool."""
        places = examples.cumsum(0) - 1  # of each that is kept
        kept = examples[self.rows]
        return replace(self, rows=places[self.rows[kept]], columns=self.columns[kept], count=int(examples.sum()))

    @cached_property
    def by_example(self) -> Tensor:
        """Sparse [examples, width]."""
        return self._sparse(self.rows, self.columns, (self.count, self.width))

    @cached_property
    def by_feature(self) -> Tensor:
        """Sparse [width, examples]."""
        return self._sparse(self.columns, self.rows, (self.width, self.count))

    def _sparse(self, rows: Tensor, columns: Tensor, shape: tuple[int, int]) -> Tensor:
        ones = torch.ones(len(rows), dtype=self.dtype)
        return torch.sparse_coo_tensor(torch.stack([rows, columns]), ones, shape, check_invariants=True).coalesce()


@dataclass(frozen=True)
class FittedProbes:
    """logit = x . weight + bias, in the units of the features."""

    weight: Tensor  # [layers, probes, width]
    bias: Tensor  # [layers, probes]
    converged: Tensor  # [layers, probes], bool

    def logits(self, features: Tensor | Marks) -> Tensor:
        """Logits [layers, probes, examples] of features [layers, examples, width]."""
        if isinstance(features, Marks):
            return along(self.weight, features) + self.bias[..., None]
        return torch.baddbmm(self.bias[..., None], self.weight, features.mT.to(self.weight.dtype))

    def parts(self, count: int) -> list["FittedProbes"]:
        """Those of the first training sets, those of as many others, and so on: so many parts."""
        chunks = (part.chunk(count, dim=1) for part in (self.weight, self.bias, self.converged))
        return [FittedProbes(*some) for some in zip(*chunks, strict=True)]


def along(weight: Tensor, features: Tensor | Marks) -> Tensor:
    """Products [layers, probes, examples] of weights [layers, probes, width] and features."""
    if isinstance(features, Marks):
        return (features.by_example @ weight[0].T).T[None]
    return torch.bmm(weight, features.mT)


def back_along(slopes: Tensor, features: Tensor | Marks) -> Tensor:
    """Products [layers, probes, width] of slopes [layers, probes, examples] and features."""
    if isinstance(features, Marks):
        return (features.by_feature @ slopes[0].T).T[None]
    return torch.bmm(slopes, features)


def fit(
    features: Tensor | Marks,  # [layers, examples, width]
    labels: Tensor,  # [examples], 0 or 1
    train: Tensor,  # [probes, examples]: whom a probe sees, as bool, or how often
    strengths: Tensor,  # [layers, probes]
) -> FittedProbes:
    """Fit one probe per layer and training set, in the dtype of the features."""
    labels, strengths = labels.to(features.dtype), strengths.to(features.dtype)
    centred: Tensor | Marks
    if isinstance(features, Marks):
        centre = torch.zeros((1, features.width), dtype=features.dtype)
        centred, scaling = features.with_ones(), _scaling_of_marks(features, train)
    else:
        centre = features.mean(1)  # [layers, width]; keeps the products below free of large common terms
        centred = _with_ones(features, centre)
        scaling = _scaling(centred[..., :-1], centre, train)
    with_intercept = _with_intercept(scaling)
    problem = _Problem(
        features=centred,
        labels=labels,
        weights=class_weights(labels, train),
        strengths=strengths,
        scaling=with_intercept,
    )
    at, converged = _newton(problem, torch.zeros_like(with_intercept.mean), TOLERANCE)
    weight = at[..., :-1] * scaling.inverse
    return FittedProbes(weight, at[..., -1] - (weight * (scaling.mean + centre[:, None])).sum(-1), converged)


def try_strengths(
    features: Tensor | Marks, labels: Tensor, train: Tensor, groups: Sequence[Sequence[float]], tolerance: float
) -> Iterator[Tensor]:
    """Train on `train` [examples] and yield the logits [layers, strengths, others] of all others, group by group.

    A group of strengths starts where the last strength of the group before ended.
    """
    labels = labels[train].to(features.dtype)
    weights = class_weights(labels, torch.ones(1, len(labels), dtype=torch.bool, device=labels.device))
    scaling: _Scaling | None = None
    inner: Tensor | Marks
    others: Callable[[Tensor], Tensor]
    if isinstance(features, Marks):
        scaling = _with_intercept(_scaling_of_marks(features, train[None]))
        inner, held_out = (features.among(some).with_ones() for some in (train, ~train))
        others = _Problem(held_out, labels, weights, strengths=scaling.mean[..., 0], scaling=scaling).logits
        at = torch.zeros_like(scaling.mean)
    else:
        inner, others = _standardised_apart(features, train)
        at = torch.zeros_like(inner[:, :1])
    for strengths in groups:
        penalties = torch.tensor(strengths, dtype=at.dtype, device=at.device).expand(len(at), -1)
        start = at[:, -1:].repeat(1, len(strengths), 1)
        problem = _Problem(inner, labels, weights.expand(len(strengths), -1), strengths=penalties, scaling=scaling)
        at, _ = _newton(problem, start, tolerance)
        yield others(at)


def _standardised_apart(features: Tensor, train: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Features of the training examples, the intercept's included, and what gives the others' logits at a point."""
    known, scaling = _standardised(features, train)
    others = features[:, ~train].sub_(scaling.mean).mul_(scaling.inverse)
    wide = known.shape[2] > known.shape[1]
    if wide:
        others = others @ known.mT  # inner products [layers, other examples, training examples]
    inner = _fewer(known) if wide else _with_ones(known)

    def logits(at: Tensor) -> Tensor:
        weight = at[..., :-1].mT
        weight = torch.linalg.solve_triangular(inner[..., :-1].mT, weight, upper=True) if wide else weight
        return (others @ weight).mT + at[..., -1:]

    return inner, logits


def fit_labellings(features: Tensor, labels: Tensor, train: Tensor, strengths: Tensor) -> FittedProbes:
    """Fit one probe per layer and labelling [labellings, examples], all on `train` [examples]; strengths [layers].

    They end where `fit` ends, but share more: each further labelling is cheap.
    """
    known, scaling = _standardised(features, train)
    wide = known.shape[2] > known.shape[1]
    inner = _fewer(known) if wide else _with_ones(known)
    own = labels[:, train].to(features.dtype)
    problem = _Problem(
        features=inner,
        labels=own,
        weights=class_weights(own, torch.ones_like(own)),
        strengths=strengths.to(features.dtype)[:, None].expand(-1, len(own)),
    )
    at, converged = _newton(problem, inner.new_zeros(len(inner), len(own), inner.shape[2]), TOLERANCE)
    weight = at[..., :-1]
    if wide:
        weight = torch.linalg.solve_triangular(inner[..., :-1].mT, weight.mT, upper=True).mT @ known
    weight = weight * scaling.inverse
    return FittedProbes(weight, at[..., -1] - (weight * scaling.mean).sum(-1), converged)


def _standardised(features: Tensor, train: Tensor) -> tuple[Tensor, "_Scaling"]:
    """The features of the training examples [layers, training examples, width], and how they were standardised."""
    count = int(train.sum())
    mean = (train.to(features.dtype)[None] / count) @ features  # [layers, 1, width]
    known = features[:, train].sub_(mean)
    spread = torch.linalg.vector_norm(known, dim=1, keepdim=True) / count**0.5
    inverse = torch.where(spread <= CONSTANT * mean.abs(), 0.0, 1 / spread)
    return known.mul_(inverse), _Scaling(mean, inverse)


def _fewer(known: Tensor) -> Tensor:
    """As many features as there are examples, in place of more: [layers, examples, examples + 1].

    They have the same inner products, being a Cholesky factor of these; the last one is the intercept's. Logits stay
    the same, and a step is cheaper.
    """
    layers, count, width = known.shape
    inner = torch.ones(layers, count, count + 1, dtype=known.dtype, device=known.device)
    products = torch.matmul(known, known.mT, out=inner[..., :-1])
    products.diagonal(dim1=1, dim2=2).add_(JITTER * width)
    products.copy_(torch.linalg.cholesky(products))
    return inner


def _with_ones(features: Tensor, centre: Tensor | None = None) -> Tensor:
    """Features [layers, examples, width + 1], less their centre [layers, width]; the last one is the intercept's."""
    extended = torch.ones(*features.shape[:2], features.shape[2] + 1, dtype=features.dtype, device=features.device)
    if centre is None:
        extended[..., :-1] = features
    else:
        torch.sub(features, centre[:, None], out=extended[..., :-1])
    return extended


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


@dataclass(frozen=True)
class _Scaling:
    """Mean and inverse scale of the features over each training set, [layers, probes, width]; inverse 0 if constant."""

    mean: Tensor
    inverse: Tensor


def _scaling(centred: Tensor, centre: Tensor, train: Tensor) -> _Scaling:
    share = train.to(centred.dtype) / train.sum(1, keepdim=True)
    mean = share @ centred
    parts = centred.split(FEATURES_AT_A_TIME, dim=2)  # their squares take as much memory as they do
    variance = torch.cat([share @ part.square() for part in parts], dim=2).sub_(mean.square())
    # A small difference of large numbers is inexact: for a training set far from the centre, go back to the data.
    for layer, feature in (variance < mean.square() / 100).any(1).nonzero().tolist():
        values = centred[layer, :, feature].double()
        seen = [values.repeat_interleave(inside.long()) for inside in train]
        variance[layer, :, feature] = torch.stack([some.var(correction=0) for some in seen])
    scale = variance.clamp_(min=0).sqrt_()
    constant = scale <= CONSTANT * (mean.abs() + centre[:, None].abs())
    return _Scaling(mean, torch.where(constant, 0.0, 1 / scale))


def _scaling_of_marks(marks: Marks, train: Tensor) -> _Scaling:
    # Counts are exact: shares that add up to almost one would let a feature that all have seem to vary.
    mean = back_along(train.to(marks.dtype)[None], marks) / train.sum(1, keepdim=True)
    return _Scaling(mean, torch.where((mean > 0) & (mean < 1), (mean * (1 - mean)).rsqrt(), 0.0))


def _with_intercept(scaling: _Scaling) -> _Scaling:
    """The intercept's stand at the end."""
    return _Scaling(pad(scaling.mean, (0, 1), value=0.0), pad(scaling.inverse, (0, 1), value=1.0))


@dataclass(frozen=True)
class _Problem:
    """Points and slopes are [layers, probes, width + 1]: weights of standardised features, and the intercept."""

    features: Tensor | Marks  # [layers, examples, width + 1]
    labels: Tensor  # [examples], or those of each probe, [probes, examples]
    weights: Tensor  # [probes, examples]
    strengths: Tensor  # [layers, probes]
    scaling: _Scaling | None = None  # with the intercept's; None where the features are standardised already

    def logits(self, at: Tensor) -> Tensor:
        """[layers, probes, examples]"""
        if self.scaling is None:
            return along(at, self.features)
        scaled = at * self.scaling.inverse
        common = vecdot(scaled, self.scaling.mean)[..., None]
        if isinstance(self.features, Marks):
            return along(scaled, self.features) - common
        return torch.baddbmm(-common, scaled, self.features.mT)

    def back(self, slopes: Tensor, at: Tensor) -> Tensor:
        """From slopes along logits [layers, probes, examples] to those along the weights, the penalty's included."""
        raw = back_along(slopes, self.features)
        if self.scaling is not None:
            raw.addcmul_(slopes.sum(-1, keepdim=True), self.scaling.mean, value=-1).mul_(self.scaling.inverse)
        raw[..., :-1].addcmul_(self.strengths[..., None], at[..., :-1])
        return raw

    def objective(self, logits: Tensor, at: Tensor) -> Tensor:
        """[layers, probes]"""
        loss = (self.weights * softplus((1 - 2 * self.labels) * logits)).sum(-1)
        return loss + self.strengths / 2 * at[..., :-1].square().sum(-1)


@dataclass(frozen=True)
class _Point:
    """Where all probes stand."""

    at: Tensor  # [layers, probes, width + 1]
    logits: Tensor  # [layers, probes, examples]
    chance: Tensor  # of label 1, [layers, probes, examples]
    slope: Tensor  # of the objective, [layers, probes, width + 1]
    steepness: Tensor  # squared length of the slope, [layers, probes]


def _point(problem: _Problem, at: Tensor, logits: Tensor) -> _Point:
    chance = torch.sigmoid(logits)
    slope = problem.back(problem.weights * (chance - problem.labels), at)
    return _Point(at=at, logits=logits, chance=chance, slope=slope, steepness=vecdot(slope, slope))


def _newton(problem: _Problem, start: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
    """The minimum, and which probes reached it, [layers, probes]."""
    limit = (tolerance * problem.strengths.clamp(0.1, 1.0)).square() * start.shape[-1]
    point = _point(problem, start, problem.logits(start))
    first = least = point.steepness
    stalled = torch.zeros_like(first)  # steps without progress
    for _ in range(NEWTON_STEPS):
        converged = point.steepness < limit
        stalled = torch.where(point.steepness < 0.5 * least, 0.0, stalled + 1)
        least = torch.minimum(least, point.steepness)
        active = ~converged & (stalled < STALLED)
        if not active.any():
            break
        precision = (point.steepness / first).sqrt().clamp(max=0.25) / 4  # sharper as the end comes near
        step = _solve(problem, point, until=point.steepness * precision, active=active)
        point = _point(problem, *_search(problem, point, step=step, active=active))
    return point.at, converged


def _solve(problem: _Problem, point: _Point, until: Tensor, active: Tensor) -> Tensor:
    """Conjugate gradients: the step at which the quadratic model has no slope, to a squared length of `until`."""
    curvature = problem.weights * (point.chance * (1 - point.chance))
    step, left = torch.zeros_like(point.slope), -point.slope
    direction, size = left, vecdot(left, left)
    tiny = torch.finfo(size.dtype).tiny
    for _ in range(GRADIENT_STEPS):
        bent = problem.back(curvature * problem.logits(direction), direction)
        length = torch.where(active, size / vecdot(direction, bent).clamp(min=tiny), 0.0)[..., None]
        step, left = torch.addcmul(step, length, direction), torch.addcmul(left, length, bent, value=-1)
        before, size = size, vecdot(left, left)
        active = active & (size > until)
        if not active.any():
            break
        direction = torch.addcmul(left, (size / before.clamp(min=tiny))[..., None], direction)
    return step


def _search(problem: _Problem, point: _Point, step: Tensor, active: Tensor) -> tuple[Tensor, Tensor]:
    """Take the step, or half of it, or a quarter, until the objective falls as it should: where that is, and logits."""
    before, falling = problem.objective(point.logits, point.at), vecdot(point.slope, step)
    slack = 8 * torch.finfo(before.dtype).eps * before.abs()
    change = problem.logits(step)
    length = active.to(before.dtype)
    for _ in range(HALVINGS):
        there = torch.addcmul(point.at, length[..., None], step)
        moved = torch.addcmul(point.logits, length[..., None], change)
        worse = active & (problem.objective(moved, there) > before + 1e-4 * length * falling + slack)
        if not worse.any():
            break
        length = torch.where(worse, length / 2, length)
    return there, moved
