"""What sequences begin with, computed once: the tokens that all of them begin with, and those that several do.

Questions begin alike, with "Who wrote" or "What is the capital of". Such an opening is computed once for all questions
that begin so, and each of them then needs only the rest of its tokens.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from torch import nn
from transformers import PreTrainedModel

from anchorscope.engine.attention import compute_prefix, extended_past
from anchorscope.engine.packing import Pack, trunk
from anchorscope.engine.work import shared_tokens

SHARERS = 4  # how many sequences have an opening at least; with fewer, there are more openings but hardly more is saved
MOST = 1024  # tokens of openings: they are computed in one pass, before any batch has shown how much memory there is

Tokens = tuple[int, ...]


class Openings:
    """A pool with the tokens that sequences begin with, and where in it those of each sequence are."""

    def __init__(self, model: PreTrainedModel, sequences: Sequence[np.ndarray], last: nn.Module | None = None):
        """With `last`, the model runs no further than that."""
        begun = [tuple(ids.tolist()) for ids in sequences]
        prefix = shared_tokens(begun)
        self.prefix = np.arange(prefix)
        self.past = compute_prefix(model, begun[0][:prefix], last)
        openings = find_openings([ids[prefix:] for ids in begun], MOST)
        self.places: dict[Tokens, np.ndarray] = {}  # in the pool, of each opening
        if openings:
            pack = Pack([trunk(self.prefix, opening) for opening in openings], prefix)
            self.past = extended_past(model, pack, self.past, last)
            for opening, (start,) in zip(openings, pack.starts, strict=False):  # the pack may end with padding
                self.places[opening] = prefix + start + np.arange(len(opening))
        self.lengths = sorted({len(opening) for opening in openings}, reverse=True)

    def known(self, ids: np.ndarray) -> np.ndarray:
        """The pool places of the tokens that one of the sequences begins with, as many as are there."""
        own = tuple(ids[len(self.prefix) :].tolist())
        found = [self.places[own[:length]] for length in self.lengths if own[:length] in self.places]
        return np.concatenate([self.prefix, *found[:1]])


def find_openings(sequences: Sequence[Tokens], most: int) -> list[Tokens]:
    """The longest beginning of each sequence that is also one of `SHARERS` - 1 others, if there is any.

    If they came to more than `most` tokens, more sequences have to share each.
    """
    ordered = sorted(sequences)
    common = np.array([shared_tokens(neighbours) for neighbours in pairwise(ordered)], np.int64)
    sharers = SHARERS
    while sharers <= len(ordered):
        # Sequences with the same beginning follow one another. In a run of them, all begin with what neighbours share.
        of_runs = sliding_window_view(common, sharers - 1).min(1)
        longest = sliding_window_view(np.pad(of_runs, sharers - 1), sharers).max(1)
        found = {ids[:length] for ids, length in zip(ordered, longest.tolist(), strict=True) if length}
        if sum(map(len, found)) <= most:
            return sorted(found)
        sharers *= 2
    return []
