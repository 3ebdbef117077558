"""Runs sequences up to one module of a model, and reads states there; what comes after it is not run."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from torch import Tensor, nn
from transformers import PreTrainedModel

from anchorscope.engine.attention import run_decoder
from anchorscope.engine.openings import Openings
from anchorscope.engine.packing import Pack, to_device, trunk
from anchorscope.engine.parts import Parts, ending_after
from anchorscope.engine.plain import Row, run_rows
from anchorscope.engine.self_check import Path
from anchorscope.extract.recorder import MODULES


class StateReader:
    """A model that is ready to run sequences which begin like those in `begin`: the first `shared` tokens are the same.

    `begin` has no token of which a state is read.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        path: Path,
        component: str,
        layer: int,
        *,
        begin: Sequence[Sequence[int] | np.ndarray],
        shared: int,
    ):
        self.model, self.parts = model, path.parts
        self.module: nn.Module = MODULES[component](path.parts.blocks[layer])
        # None on the plain path, which runs whole sequences.
        self.openings = Openings(model, begin, shared, last=self.module) if path.name == "packed" else None

    def read(self, run: Callable[[], object], places: np.ndarray) -> Tensor:
        """The states [places, width] of some of all tokens of a forward pass."""
        with _keeping(self.module, self.parts, places) as kept, ending_after(self.module):
            run()
        return kept[0]

    def read_ends(self, sequences: Sequence[Sequence[int]], counts: Sequence[int]) -> Tensor:
        """The states [sum of counts, width] of the last tokens of each sequence, as many as `counts` says."""
        lengths = np.array([len(ids) for ids in sequences])
        if self.openings is None:
            rows = [Row(np.array(ids), cut=[], layers=range(0)) for ids in sequences]
            ends = np.arange(len(rows)) * lengths.max() + lengths
            return self.read(lambda: run_rows(self.model, self.parts, rows), _before(ends, counts))
        past, known = self.openings.past, self.openings.prefix
        pack = Pack([trunk(known, ids[len(known) :]) for ids in sequences], len(past))
        ends = (lengths - len(known)).cumsum()
        return self.read(lambda: run_decoder(self.model, pack, past), _before(ends, counts))


def _before(ends: np.ndarray, counts: Sequence[int]) -> np.ndarray:
    """The last `count` places before each end, one stretch after the other."""
    return np.concatenate([np.arange(end - count, end) for end, count in zip(ends, counts, strict=True)])


@contextmanager
def _keeping(module: nn.Module, parts: Parts, places: np.ndarray) -> Iterator[list[Tensor]]:
    """A list that gets the states of some of all tokens [places, width] when the module runs."""
    kept: list[Tensor] = []

    def keep(module: nn.Module, args: Any, output: Any) -> None:
        states = parts.states(output)
        kept.append(states.flatten(0, -2).index_select(0, to_device(places, states.device)))

    handle = module.register_forward_hook(keep)
    try:
        yield kept
    finally:
        handle.remove()
