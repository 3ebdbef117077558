"""Which examples share a pass: a fixed plan, so that a rerun repeats every rounding; smaller when memory runs out."""

from collections.abc import Callable
from contextlib import nullcontext

import torch

from anchorscope.files.logs import log, meter

# Python, numpy and torch's caching allocators have their own errors for a lack of memory. All others raise a
# RuntimeError that only its words tell apart, and these differ between systems and libraries:
NO_MEMORY = (
    "can't allocate memory",  # torch on the host, where memory comes from posix_memalign
    "not enough memory",  # torch on the host elsewhere: on Windows, on some ARM
    "out of memory",  # CUDA error, HIP, XPU, MPS backend
    "bad_alloc",  # the C++ library
    "bad allocation",  # Microsoft's C++ library
    "alloc_failed",  # CUBLAS_STATUS_ALLOC_FAILED, and cuDNN's
    "could not create a memory object",  # oneDNN
)


def plan_batches(sizes: list[int], budget: int, among: list[int] | None = None) -> list[list[int]]:
    """Group examples of similar size, all or those `among` them, so that the tokens of a group stay within `budget`.

    Groups are equally large: a small one at the end would take nearly as long as a large one. An example that exceeds
    the budget is a batch of its own. The largest come first, so that a lack of memory shows at once and not at the end.
    """
    ordered = sorted(range(len(sizes)) if among is None else among, key=lambda index: (-sizes[index], index))
    whole = sum(sizes[index] for index in ordered)
    # A group to which the next one cannot be added is larger than an equal share.
    most = min(budget, whole / -(-whole // budget) + sizes[ordered[0]]) if ordered else budget
    plan: list[list[int]] = []
    filled = 0
    for index in ordered:
        if plan and filled + sizes[index] <= most:
            plan[-1].append(index)
            filled += sizes[index]
        else:
            plan.append([index])
            filled = sizes[index]
    return plan


def run_batches(run: Callable[[list[int]], None], sizes: list[int], budget: int, what: str | None = None) -> None:
    """Call `run` on batches of examples until all are done, and show the progress of `what` it is.

    When memory runs out, the budget is halved for that batch and all that follow. `run` must leave nothing behind when
    it fails.
    """
    plan = plan_batches(sizes, budget)
    with meter(len(sizes), what) if what else nullcontext(lambda count: None) as done:
        while plan:
            if _fits(run, plan[0]):
                done(len(plan.pop(0)))
                continue
            tokens = sum(sizes[index] for index in plan[0])
            if len(plan[0]) == 1:
                raise MemoryError(f"A single example of {tokens} tokens does not fit into memory.")
            smaller = tokens // 2
            log.warning("out of memory at %d tokens per batch; going on with %d", tokens, smaller)
            torch.cuda.empty_cache()
            plan = plan_batches(sizes, smaller, among=[index for batch in plan for index in batch])


def _fits(run: Callable[[list[int]], None], batch: list[int]) -> bool:
    """Whether there was memory for the batch. When this returns, the tensors of a failed one are gone."""
    try:
        run(batch)
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        return False
    return True


def out_of_memory(error: Exception) -> bool:
    """Whether an error means that there is too little memory, on any system and device."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in NO_MEMORY)
