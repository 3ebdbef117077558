"""Activations of several datasets as one set."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from anchorscope.extract.axes import Pass
from anchorscope.extract.store import ActivationReader


class PooledReader:
    """Reads the vectors of some datasets, one dataset after the other."""

    def __init__(self, readers: Mapping[str, ActivationReader]):
        first, *_ = self.readers = list(readers.values())
        self.grid, self.layers, self.width = first.grid, first.layers, first.width
        self.keys = [_pooled(key, dataset) for dataset, reader in readers.items() for key in reader.keys]
        self.datasets = np.repeat(list(readers), [len(reader.keys) for reader in self.readers])  # of each example

    def read_passes(self, component: str, position: str, passes: Sequence[Pass], layers: range) -> dict[Pass, Tensor]:
        """Vectors of several passes at once, each [layers, examples, width]."""
        found = [reader.read_passes(component, position, passes, layers=layers) for reader in self.readers]
        return {run: torch.cat([some[run] for some in found], dim=1) for run in passes}


def _pooled(key: dict, dataset: str) -> dict:
    """An example's key with an id that no other dataset has.

    A question that two datasets ask stays in one cluster: its id, made from its text, is the same in both.
    """
    return {**key, "id": f"{dataset}/{key['id']}", "subject": key["subject"] or key["id"]}
