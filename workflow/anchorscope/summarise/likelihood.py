"""Maximum likelihood of many small problems at once, by Newton's method.

Every example has a few natural parameters, each a linear function of columns that are known. A density gives the first
two derivatives by the natural parameters; the rest is matrix products. Steps are damped where the likelihood is not
concave, and taken back where they do not help.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import torch
from torch import Tensor

GAIN_TOLERANCE = 1e-5  # a problem ends when its log likelihood gains less than this per example
DAMPING = 1e-2  # at the start, in units of the gradients' variance
MOST_DAMPING = 1e6


@dataclass(frozen=True)
class Derivatives:
    """A log density [runs, folds, examples], with its derivatives by natural parameters."""

    value: Tensor
    gradient: Tensor  # [parameters, runs, folds, examples]
    second: dict[tuple[int, int], Tensor]  # by two natural parameters, the smaller number first; none: nothing
    square: Tensor  # [parameters, runs, folds, examples]: its products are added to the second derivatives


@dataclass(frozen=True)
class Design:
    """The columns [runs, examples, columns] of every natural parameter, and how far each coefficient is held back."""

    columns: list[Tensor]
    ridge: Tensor  # [coefficients]: the inverse variance of a normal prior
    _pairs: dict[tuple[int, int], Tensor] = field(default_factory=dict)  # what `pairs` has made

    def pairs(self, one: int, two: int) -> Tensor:
        """Products of the columns of two natural parameters, [runs, examples, products]."""
        if (one, two) not in self._pairs:
            self._pairs[one, two] = (self.columns[one][..., :, None] * self.columns[two][..., None, :]).flatten(-2)
        return self._pairs[one, two]

    @property
    def sizes(self) -> list[int]:
        return [part.shape[-1] for part in self.columns]

    def of(self, runs: Tensor) -> "Design":
        """That of some runs; copying products is faster than making them again."""
        pairs = {names: products[runs] for names, products in self._pairs.items()}
        return Design([part[runs] for part in self.columns], self.ridge, pairs)

    def natural(self, parameters: Tensor) -> Tensor:
        """The natural parameters [parameters, runs, folds, examples] at coefficients [runs, folds, coefficients]."""
        parts = parameters.split(self.sizes, dim=-1)
        return torch.stack([part @ columns.mT for part, columns in zip(parts, self.columns, strict=True)])


@dataclass
class _Point:
    """Where problems stand: coefficients, log likelihood, gradient, curvature, and the gradients' own variance."""

    parameters: Tensor  # [runs, folds, coefficients]
    value: Tensor  # [runs, folds]
    gradient: Tensor
    curvature: Tensor  # [runs, folds, coefficients, coefficients]
    scale: Tensor  # [runs, folds, coefficients]

    def take(self, other: "_Point", where: Tensor) -> None:
        for name, mine in vars(self).items():
            shape = where.reshape(where.shape + (1,) * (mine.dim() - where.dim()))
            setattr(self, name, torch.where(shape, getattr(other, name), mine))


def _look(density: Callable[[Tensor], Derivatives], design: Design, weights: Tensor, parameters: Tensor) -> _Point:
    """The penalised log likelihood and its derivatives at some coefficients."""
    found, columns = density(design.natural(parameters)), design.columns
    slopes = [weights * slope for slope in found.gradient]
    return _Point(
        parameters=parameters,
        value=(weights * found.value).sum(-1, dtype=torch.float64) - (design.ridge * parameters**2).sum(-1) / 2,
        gradient=torch.cat([slope @ part for slope, part in zip(slopes, columns, strict=True)], dim=-1)
        - design.ridge * parameters,
        curvature=torch.diag(design.ridge) - _second(found, design, weights),
        scale=torch.cat([(slope**2) @ part**2 for slope, part in zip(slopes, columns, strict=True)], dim=-1).clamp(
            min=1e-3
        )
        + design.ridge,
    )


def _second(found: Derivatives, design: Design, weights: Tensor) -> Tensor:
    """The second derivatives of the log likelihood by the coefficients."""
    roots = weights.sqrt()
    square = torch.cat(
        [(roots * part)[..., None] * some[:, None] for part, some in zip(found.square, design.columns, strict=True)],
        dim=-1,
    )
    total = square.mT @ square
    places = [slice(*ends) for ends in pairwise(accumulate(design.sizes, initial=0))]
    for (one, two), bend in found.second.items():
        block = ((weights * bend) @ design.pairs(one, two)).unflatten(-1, (design.sizes[one], design.sizes[two]))
        total[..., places[one], places[two]] += block
        if one != two:
            total[..., places[two], places[one]] += block.mT
    return total


def _step(point: _Point, damping: Tensor) -> tuple[Tensor, Tensor]:
    """A damped Newton step, and the damping that it took to make the problem concave."""
    while True:
        damped = point.curvature.double() + torch.diag_embed(damping[..., None] * point.scale)
        factor, failed = torch.linalg.cholesky_ex(damped)
        open_ = (failed > 0) & (damping < MOST_DAMPING)
        if not open_.any():
            break
        damping = torch.where(open_, 10 * damping, damping)
    step = torch.cholesky_solve(point.gradient[..., None].double(), factor)[..., 0].to(point.gradient)
    return torch.where((failed > 0)[..., None], torch.zeros_like(step), step), damping


def maximise(
    density: Callable[[Tensor, Tensor], Derivatives], design: Design, weights: Tensor, start: Tensor, steps: int
) -> tuple[Tensor, Tensor]:
    """The best coefficients [runs, folds, coefficients] and log likelihood [runs, folds], from `start`.

    `weights` [runs, folds, examples] say who counts. `density` gets natural parameters and the numbers of the runs
    that they are of: what has ended is not looked at again, except beside a run with more folds to go.
    """
    runs = torch.arange(len(start), device=start.device)
    folds = torch.arange(start.shape[1], device=start.device).expand(start.shape[:2])
    best, value = start.clone(), torch.zeros_like(weights[..., 0], dtype=torch.float64)
    point = _look(lambda natural: density(natural, runs), design, weights, start)
    damping, done = torch.full_like(point.value, DAMPING), torch.zeros_like(point.value, dtype=torch.bool)
    for _ in range(steps):
        step, damping = _step(point, damping)
        now = runs
        tried = _look(lambda natural: density(natural, now), design, weights, point.parameters + step)  # noqa: B023
        gain = tried.value - point.value
        better = torch.isfinite(tried.value) & (gain >= 0) & ~done
        point.take(tried, better)
        damping = torch.where(better, (damping / 10).clamp(min=1e-6), 6 * damping)
        done |= (gain.abs() < GAIN_TOLERANCE * weights.sum(-1)) | (damping > MOST_DAMPING)
        best[runs[:, None], folds], value[runs[:, None], folds] = point.parameters, point.value
        if done.all():
            break
        going, width = (~done.all(1)).nonzero(), int((~done).sum(1).max())
        if len(going) < len(runs) or width < done.shape[1]:
            left = going, done[going[:, 0]].int().argsort(dim=1, stable=True)[:, :width]  # those to go first
            point = _Point(**{name: part[left] for name, part in vars(point).items()})
            folds, weights, damping, done = (part[left] for part in (folds, weights, damping, done))
            if len(going) < len(runs):
                runs, design = runs[going[:, 0]], design.of(going[:, 0])
    return best, value
