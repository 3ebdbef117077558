"""Activations of several datasets as one set, and what they share.

Examples with the same question or the same subject, directly or over others, are one cluster.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from anchorscope.extract.axes import Pass
from anchorscope.extract.store import ActivationReader
from anchorscope.text.normal_words import bare_words


def joint_clusters(questions: Sequence[str], clusters: Sequence[str]) -> list[str]:
    """The cluster of each example among all: that of the first example which it shares a question or a cluster with.

    Both are compared by their normalised words. Who shares something with an example also shares what that one does.
    """
    earlier = list(range(len(clusters)))  # of each example, one before it that it belongs with; itself, if it is first
    known: dict[tuple[str, str], int] = {}

    def first(number: int) -> int:
        while earlier[number] != number:
            earlier[number] = earlier[earlier[number]]  # a shorter way for the next time
            number = earlier[number]
        return number

    for number, (question, cluster) in enumerate(zip(questions, clusters, strict=True)):
        for key in (("question", _normal(question)), ("cluster", _normal(cluster))):
            one, other = sorted((first(number), first(known.setdefault(key, number))))
            earlier[other] = one
    return [clusters[first(number)] for number in range(len(clusters))]


def _normal(text: str) -> str:
    """Its normalised words; a text without any, such as the name of a band, in lower case."""
    return " ".join(bare_words(text)) or text.strip().casefold()


class PooledReader:
    """Reads the vectors of some datasets, one dataset after the other. No two examples have the same id."""

    def __init__(self, readers: Mapping[str, ActivationReader]):
        first, *_ = self.readers = list(readers.values())
        self.grid, self.layers, self.width = first.grid, first.layers, first.width
        self.dtype = str(first.dtype).removeprefix("torch.")
        self.datasets = np.repeat(list(readers), [len(reader.keys) for reader in self.readers])  # of each example
        keys = [key for reader in self.readers for key in reader.keys]
        # The id of a question is made from its text.
        clusters = joint_clusters([key["id"] for key in keys], [key["subject"] or key["id"] for key in keys])
        self.keys = [
            {**key, "id": f"{dataset}/{key['id']}", "subject": cluster}
            for dataset, key, cluster in zip(self.datasets, keys, clusters, strict=True)
        ]

    def read_passes(self, component: str, position: str, passes: Sequence[Pass], layers: range) -> dict[Pass, Tensor]:
        """Vectors of several passes at once, each [layers, examples, width]."""
        found = [reader.read_passes(component, position, passes, layers=layers) for reader in self.readers]
        return {run: torch.cat([some[run] for some in found], dim=1) for run in passes}


def by_dataset(files: Sequence[str], datasets: Sequence[str]) -> dict[str, Sequence[str]]:
    """The files of each dataset, from a list in which those of one stand together, equally many of each."""
    each = len(files) // len(datasets)
    return {name: files[number * each : (number + 1) * each] for number, name in enumerate(datasets)}
