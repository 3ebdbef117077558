"""Is a knocked-out state still one of the model's? How far states lie from clean ones, in their own directions."""

import torch
from torch import Tensor

DIRECTIONS = 32  # leading ones of the clean states
EXAMPLES_PER_DIRECTION = 4  # fewer directions where training examples are few
ROUNDS = 5  # of the search for directions
LEAST_SPREAD = 1e-6  # relative to the largest; less is rounding


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

    Found by iteration in a space twice as large, and then exactly within it. A card would take many times as long for
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
    _, turned = torch.linalg.eigh((within.mT @ within).cpu())  # small, and faster there than on a card
    return found @ turned[..., -count:].to(found)


def _root(columns: Tensor, scale: int = 1) -> Tensor:
    """The lower Cholesky factor [layers, count, count] of the columns' inner products, divided by `scale`."""
    products = columns.mT @ columns / scale
    least = (LEAST_SPREAD**2 * products.diagonal(dim1=1, dim2=2).amax(1)).clamp(min=1e-60)
    return torch.linalg.cholesky(products + torch.diag_embed(least[:, None].expand(-1, products.shape[1])))
