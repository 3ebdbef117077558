"""Is a knocked-out state still one of the model's? How far states lie from clean ones, in their own directions."""

import torch
from torch import Tensor

DIRECTIONS = 32  # leading ones of the clean states
EXAMPLES_PER_DIRECTION = 4  # fewer directions where training examples are few


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
        directions, spreads = _leading(train - mean, count)
        for intervention, vectors in states.items():
            along = (vectors[:, inside].float() - mean) @ directions / spreads
            found[intervention][:, inside] = along.square().mean(-1).sqrt()
    return {intervention: distance.cpu() for intervention, distance in found.items()}


def _leading(centred: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Leading directions [layers, width, count] of centred states, and the spread along each [layers, 1, count]."""
    with torch.random.fork_rng(devices=[centred.device] if centred.is_cuda else []):
        torch.manual_seed(0)  # the search for directions begins with random ones
        rank = min(2 * count, *centred.shape[1:])
        _, sizes, directions = torch.svd_lowrank(centred, q=rank, niter=4)
    spreads = sizes[:, None, :count] / centred.shape[1] ** 0.5
    return directions[..., :count], spreads.clamp(min=1e-6 * spreads.amax().clamp(min=1e-30))
