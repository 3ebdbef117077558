"""All layers weighed, some at a time, in several processes where that takes long.

In threads they would wait for one another after each of many small steps.
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch
from safetensors.torch import load, save
from torch import Tensor

from anchorscope.files.logs import progress
from anchorscope.files.processes import run_apart
from anchorscope.summarise.accounts import Weighed, weigh

AT_ONCE = 8_000  # examples of all layers that are fitted together; more do not stay in a processor's cache
A_PROCESS = 50_000  # examples of all layers for which a process begins; that takes less time than they do


def weigh_layers(clean: Tensor, cut: Tensor, folds: Tensor, *, processes: int, what: str) -> Weighed:
    """Logits [layers, prompts, examples], in at most so many processes."""
    count = min(processes, len(clean), 1 + clean[:, 0].numel() // A_PROCESS)
    if count == 1:
        return _one_after_another(clean, cut, folds, what)
    shares = [
        save({"clean": some.contiguous(), "cut": same.contiguous(), "folds": folds})
        for some, same in zip(clean.tensor_split(count), cut.tensor_split(count), strict=True)
    ]
    with ThreadPoolExecutor(count) as threads:
        found = progress(threads.map(partial(run_apart, __name__), shares), count, what)
        return _joined([Weighed(**load(part)) for part in found])


def _one_after_another(clean: Tensor, cut: Tensor, folds: Tensor, what: str) -> Weighed:
    size = max(1, AT_ONCE // len(folds))
    shares = zip(clean.split(size), cut.split(size), strict=True)
    return _joined([weigh(*share, folds) for share in progress(shares, -(-len(clean) // size), what)])


def _joined(parts: list[Weighed]) -> Weighed:
    return Weighed(*map(torch.cat, zip(*(vars(part).values() for part in parts), strict=True)))


if __name__ == "__main__":
    torch.set_num_threads(1)
    weighed = _one_after_another(**load(sys.stdin.buffer.read()), what="weighing a share")
    sys.stdout.buffer.write(save({name: part.contiguous() for name, part in vars(weighed).items()}))
