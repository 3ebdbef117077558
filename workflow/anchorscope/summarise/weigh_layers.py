"""All layers of some sets of examples weighed, in several processes where that takes long.

In threads they would wait for one another after each of many small steps.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TypeVar

import torch
from safetensors.torch import load, save
from torch import Tensor

from anchorscope.files.logs import progress
from anchorscope.files.processes import run_apart
from anchorscope.summarise.accounts import Weighed, weigh

AT_ONCE = 32_000  # examples of all layers that are fitted together; more gain no time
# Examples of all layers and sets for which another process begins: they take as long as that.
A_PROCESS = 7_500


@dataclass(frozen=True)
class SetLogits:
    """The logits of one set of examples."""

    clean: Tensor  # [layers, prompts, examples]
    cut: Tensor
    folds: Tensor  # [examples]

    def split(self, sizes: int | list[int]) -> "Iterator[SetLogits]":
        """So many layers at a time."""
        for clean, cut in zip(self.clean.split(sizes), self.cut.split(sizes), strict=True):
            yield SetLogits(clean, cut, self.folds)


Of = TypeVar("Of", SetLogits, Weighed)


def weigh_layers(sets: Sequence[SetLogits], *, processes: int, what: str) -> list[Weighed]:
    """Each set, which have the same layers, in at most so many processes: each takes some layers of all sets.

    This one takes no fewer of them than the others, which have to begin.
    """
    if not sets:
        return []
    layers, examples = len(sets[0].clean), sum(len(one.folds) for one in sets)
    spare = layers - A_PROCESS // examples  # which the others share with this one
    count = min(processes, spare, 1 + layers * examples // A_PROCESS)
    if count <= 1:
        return _one_after_another(sets, what)
    each, more = divmod(spare, count)
    sizes = [each + (number < more - 1) for number in range(count - 1)]
    mine, *others = zip(*(one.split([layers - sum(sizes), *sizes]) for one in sets), strict=True)
    with ThreadPoolExecutor(len(others)) as threads:
        found = threads.map(partial(run_apart, __name__), map(_written, others))
        parts = [_one_after_another(mine, what), *(_read(Weighed, share) for share in found)]
        return [_joined(of_set) for of_set in zip(*parts, strict=True)]


def _one_after_another(sets: Sequence[SetLogits], what: str) -> list[Weighed]:
    steps = [list(one.split(max(1, AT_ONCE // len(one.folds)))) for one in sets]
    weighed = (weigh(**vars(step)) for of_set in steps for step in of_set)
    found = iter(list(progress(weighed, sum(map(len, steps)), what)))
    return [_joined(islice(found, len(of_set))) for of_set in steps]


def _joined(parts: Iterable[Weighed]) -> Weighed:
    return Weighed(*map(torch.cat, zip(*(vars(part).values() for part in parts), strict=True)))


def _written(some: Iterable[SetLogits | Weighed]) -> bytes:
    """As one file in memory."""
    return save(
        {f"{number} {name}": part.contiguous() for number, one in enumerate(some) for name, part in vars(one).items()}
    )


def _read(kind: type[Of], written: bytes) -> list[Of]:
    found: dict[int, dict[str, Tensor]] = defaultdict(dict)
    for key, part in load(written).items():
        number, name = key.split()
        found[int(number)][name] = part
    return [kind(**found[number]) for number in sorted(found)]


if __name__ == "__main__":
    torch.set_num_threads(1)
    share = _read(SetLogits, sys.stdin.buffer.read())
    sys.stdout.buffer.write(_written(_one_after_another(share, what="weighing a share")))
