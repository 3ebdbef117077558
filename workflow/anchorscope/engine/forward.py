"""One forward pass over a batch of items, however it is made, and where in it states are read."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

Places = list[list[int]]  # of each item, among all tokens of a pass


@dataclass(frozen=True)
class Forward:
    """What runs a pass, and where the items are read in it: at the same tokens in all layers, but for a window."""

    run: Callable[[], Tensor]  # what the model gives for every token, [tokens, ...]
    places: list[Places]
    of_layer: list[int]  # which of these places hold in each layer
    # With a window, tokens that are set back before a layer, and the clean ones that they become: in turn.
    back: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
