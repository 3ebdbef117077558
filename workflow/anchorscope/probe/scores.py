"""What is measured of the states of some layers: probe logits and distances, each by those that never saw the example.

| probe | trained on | used for |
|---|---|---|
| full | all training folds, first prompt | P, delta P, `flip`, `fixed`, AUC |
| half_a | half A of the training folds, first prompt | `crossfit`, `honest` |
| half_b | half B of the training folds, first prompt | `crossfit` |
| second_b | half B of the training folds, second prompt | `honest` |
| shuffled | all training folds, first prompt, labels that are shuffled | what a probe of no meaning reaches |

The strength of the penalty is chosen by cross-validation inside the training folds of `full`, once per layer and fold.
All other probes take the same strength.

Three of the probes, those behind the AUC and behind `honest`, are also fitted to labels of which some are turned: on
the folds and halves of the first repeat, with the strengths that were chosen for the labels as they are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from anchorscope.extract.axes import EXACT
from anchorscope.probe.anchor_rules import FULL, HALF_A, HALF_B, ROLES, SECOND_B, Probe
from anchorscope.probe.logistic import FittedProbes, fit, fit_labellings
from anchorscope.probe.strengths import cross_fitting, fit_training_sets, own_fold, whom_folds_hold_out

Kept = TypeVar("Kept")  # what keeps tensors
Logits = dict[tuple[Probe, str], Tensor]  # (probe, intervention) -> [layers, examples]
# What the AUC and the honest gap are made from.
READ = {FULL: ["clean"], **{role.labels: ["clean", EXACT] for role in ROLES["honest"]}}
DIRECTIONS = 32  # leading ones of the clean states
EXAMPLES_PER_DIRECTION = 4  # fewer directions where training examples are few
ROUNDS = 5  # of the search for directions
LEAST_SPREAD = 1e-6  # relative to the largest; less is rounding


def each(kept: Kept, change: Callable[[Tensor], Tensor]) -> Kept:
    """The same with every tensor changed."""
    return _made([kept], lambda tensors: change(tensors[0]))


def join_layers(parts: Sequence[Kept]) -> Kept:
    """The layers of one part after those of the other."""
    return _made(parts, torch.cat)


def _made(parts: Sequence[Any], make: Callable[[list[Tensor]], Tensor]) -> Any:
    """The same as each of the parts, with what `make` makes of the tensors that have the same place in all."""
    first = parts[0]
    if isinstance(first, Tensor):
        return make(list(parts))
    if isinstance(first, list):
        return [_made(same, make) for same in zip(*parts, strict=True)]
    if isinstance(first, dict):
        return {key: _made([part[key] for part in parts], make) for key in first}
    if is_dataclass(first):
        return replace(first, **_made([vars(part) for part in parts], make))  # type: ignore[type-var]
    raise TypeError(f"{type(first).__name__} keeps no tensors by layer.")


@dataclass(frozen=True)
class Scores:
    """Out-of-fold logits of "hallucinated", and how the probes behind them were fitted."""

    logits: Logits
    probes: dict[Probe, FittedProbes]  # [layers, folds]
    shuffled: Tensor  # [layers, examples], of probes that learnt shuffled labels
    strengths: Tensor  # [layers, folds]
    converged: Tensor  # [layers, folds]
    inner_losses: Tensor  # [layers, folds]: of the strength that was chosen, on folds inside the training data

    def interventions(self) -> list[str]:
        """Those that were run under the first prompt; clean is one of them."""
        return [intervention for probe, intervention in self.logits if probe is FULL]


def cross_fit_scores(
    states: dict[tuple[str, str], Tensor],  # (prompt, intervention) -> [layers, examples, width]
    hallucinated: Tensor,  # [examples], bool
    folds: Tensor,  # [examples]
    halves: Tensor,  # [examples]
    shuffled: Tensor,  # [examples], bool: the labels of the control probes
) -> Scores:
    """Fit all probes of some layers and score every intervention with them.

    States of half precision are widened one at a time.
    """
    labels, outer = hallucinated.float(), cross_fitting(folds)
    clean = widened(states["first", "clean"])
    fitted = fit_training_sets(clean, labels, outer.with_halves(halves))
    strengths, losses = (some[:, : len(outer)] for some in (fitted.strengths, fitted.losses))
    probes = dict(zip((FULL, HALF_A, HALF_B), fitted.probes.parts(3), strict=True))
    control = fit(features=clean, labels=shuffled.float(), train=outer.train, strengths=strengths).logits(clean)
    del clean
    logits = out_of_fold(probes, under("first", states), folds)
    if ("second", "clean") in states:
        clean, train = widened(states["second", "clean"]), outer.train & (halves == SECOND_B.half)
        probes[SECOND_B] = fit(features=clean, labels=labels, train=train, strengths=strengths)
        del clean
        logits |= out_of_fold({SECOND_B: probes[SECOND_B]}, under("second", states), folds)
    scores = Scores(
        logits=logits,
        probes=probes,
        shuffled=own_fold(control, folds).double(),
        strengths=strengths,
        converged=torch.stack([one.converged for one in probes.values()]).all(0),
        inner_losses=losses,
    )
    return each(scores, Tensor.cpu)


def under(prompt: str, states: dict[tuple[str, str], Tensor]) -> dict[str, Tensor]:
    """The states of one prompt, by intervention."""
    return {intervention: vectors for (other, intervention), vectors in states.items() if other == prompt}


def out_of_fold(probes: dict[Probe, FittedProbes], states: dict[str, Tensor], folds: Tensor) -> Logits:
    """What probes of one prompt say of its states [layers, examples, width] by intervention: each of its own fold."""
    logits: Logits = {}
    for intervention, vectors in states.items():
        seen = widened(vectors)
        for probe, fitted in probes.items():
            logits[probe, intervention] = own_fold(fitted.logits(seen), folds).double().cpu()
    return logits


def widened(states: Tensor) -> Tensor:
    return states if states.dtype == torch.float64 else states.float()


def score_labellings(
    states: dict[tuple[str, str], Tensor],  # (prompt, intervention) -> [layers, examples, width]
    labels: Tensor,  # [labellings, examples]
    folds: Tensor,  # [examples]
    halves: Tensor,  # [examples]
    strengths: Tensor,  # [layers, folds]
) -> Logits:
    """Out-of-fold logits [layers, labellings, examples] of probes fitted to each labelling."""
    held_out = whom_folds_hold_out(folds)
    logits: Logits = {}
    for probe, interventions in READ.items():
        own = {name: widened(states[probe.prompt, name]) for name in interventions}
        found = {name: torch.zeros(len(some), *labels.shape, dtype=torch.float64) for name, some in own.items()}
        for fold, who in enumerate(held_out):
            train = ~who if probe.half is None else ~who & (halves == probe.half)
            fitted = fit_labellings(own["clean"], labels=labels, train=train, strengths=strengths[:, fold])
            for name, vectors in own.items():
                found[name][..., who.cpu()] = fitted.logits(vectors[:, who]).double().cpu()
        logits |= {(probe, name): values for name, values in found.items()}
    return logits


def distances(states: dict[str, Tensor], folds: Tensor) -> dict[str, Tensor]:
    """The distance [layers, examples] of states [layers, examples, width], by intervention, from the clean ones.

    Mahalanobis' distance in the space of the clean states' leading directions, divided by the root of their number: a
    clean state lies at about one. Mean, directions and spreads are those of the training folds; each example is
    measured by those that do not contain it.
    """
    clean = states["clean"].float()
    found = {intervention: clean.new_zeros(clean.shape[:2]) for intervention in states}
    for fold in folds.unique():
        inside = folds == fold
        train = clean[:, ~inside]
        mean = train.mean(1, keepdim=True)
        count = max(1, min(DIRECTIONS, train.shape[1] // EXAMPLES_PER_DIRECTION, train.shape[2]))
        directions = _leading(train - mean, count)
        spreads = _root(((train - mean) @ directions).double(), scale=train.shape[1])
        for intervention, vectors in states.items():
            along = ((vectors[:, inside].float() - mean) @ directions).double()
            units = torch.linalg.solve_triangular(spreads, along.mT, upper=False)
            found[intervention][:, inside] = units.square().mean(1).sqrt().float()
    return {intervention: distance.cpu() for intervention, distance in found.items()}


def _leading(centred: Tensor, count: int) -> Tensor:
    """The leading directions [layers, width, count] of centred states.

    Found by iteration in a space twice as large, and then exactly within it. A GPU would take many times as long for
    the decompositions of a library's own search.
    """
    start = torch.randn(
        centred.shape[2], min(2 * count, *centred.shape[1:]), generator=torch.Generator().manual_seed(0)
    )
    found = start.to(centred).expand(len(centred), -1, -1)
    for _ in range(ROUNDS):
        moved = (centred.mT @ (centred @ found)).double()
        found = torch.linalg.solve_triangular(_root(moved), moved.mT, upper=False).mT.to(centred.dtype)
    within = (centred @ found).double()
    _, turned = torch.linalg.eigh((within.mT @ within).cpu())  # small, and faster there than on a GPU
    return found @ turned[..., -count:].to(found)


def _root(columns: Tensor, scale: int = 1) -> Tensor:
    """The lower Cholesky factor [layers, count, count] of the columns' inner products, divided by `scale`."""
    products = columns.mT @ columns / scale
    least = (LEAST_SPREAD**2 * products.diagonal(dim1=1, dim2=2).amax(1)).clamp(min=1e-60)
    return torch.linalg.cholesky(products + torch.diag_embed(least[:, None].expand(-1, products.shape[1])))
