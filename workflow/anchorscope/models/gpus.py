"""Which GPUs this machine has, and which of them, or what part of one, a job may take.

Jobs import and plan side by side. Each takes its GPUs when it is ready to compute, and gives them back, their memory
freed, when its last kernel has run. A job that needs little of a GPU's memory takes a part of it: while it loads its
model and tries it out, the GPU computes for others.
"""

import math
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import Timeout, UnixFileLock, has_fcntl

from anchorscope.files.logs import log

if TYPE_CHECKING:
    import torch

SECONDS_BETWEEN_TRIES = 0.02
PARTS = 4  # of a GPU
PARTS_TAKEN = {1: "a quarter of ", 2: "half of ", PARTS: ""}
FOR_PARTS = 0.8  # the share of a GPU's memory that its parts have together; the rest is what the driver keeps for jobs

Held = dict[int, list[UnixFileLock]]  # GPUs by number, each with the locks of the parts that are held


def gpu_count() -> int:
    """How many NVIDIA GPUs this process may use, asked without loading a deep-learning library."""
    visible = os.getenv("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([name for name in visible.split(",") if name.strip() not in ("", "-1")])
    return len(list(Path("/dev").glob("nvidia[0-9]*")))


def gpus() -> list:
    """What torch knows of each GPU; nothing is put on one to find out."""
    import torch  # slow to import, and not needed to start a workflow

    return [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]


def parts_for(needed: float, gpu_bytes: int) -> int:
    """How many parts of a GPU a job takes that needs so many bytes."""
    return next((parts for parts in PARTS_TAKEN if needed <= share_of(parts) * gpu_bytes), PARTS)


def share_of(parts: int) -> float:
    """The share of a GPU's memory that a job with so many parts may fill."""
    return 1.0 if parts == PARTS else FOR_PARTS * parts / PARTS


def take(count: int, needed: float = math.inf) -> Held:
    """Wait for `count` GPUs that no other job of this machine holds, or for part of one where that has `needed` bytes.

    The job cannot fill more than that.
    """
    import torch

    found = gpus()
    parts = parts_for(needed, min(gpu.total_memory for gpu in found)) if count == 1 else PARTS
    held = claim([str(gpu.uuid) for gpu in found], count, Path(tempfile.gettempdir()), parts)
    for number in held:
        torch.cuda.set_per_process_memory_fraction(share_of(parts), number)
    return held


def give_back(held: Held) -> None:
    """Let other jobs have the GPUs. Everything that was on them must be gone."""
    import torch

    for number in held:
        torch.cuda.synchronize(number)
        torch.cuda.set_per_process_memory_fraction(share_of(PARTS), number)
    torch.cuda.empty_cache()
    _release(chain(*held.values()))
    log.info("gave back GPU %s", ", ".join(map(str, held)))


@contextmanager
def one_gpu(needed: float) -> Iterator["torch.device"]:
    """A GPU, or part of one that has so many bytes, for as long as the block runs, which must leave nothing on it."""
    import torch

    held = take(1, needed)
    try:
        yield torch.device("cuda", *held)
    finally:
        give_back(held)


def claim(names: list[str], count: int, folder: Path, parts: int = PARTS) -> Held:
    """Take so many parts of `count` of the named GPUs that no other job holds, and wait while there are too few.

    Returns each GPU's index in `names` with the locks that hold it. Releasing them frees the GPU, and so does the end
    of the process, however it ends. The emptiest GPUs are taken.
    """
    if count > len(names):
        raise RuntimeError(f"{count} GPUs are needed to hold the model, and {len(names)} can be used here.")
    if not has_fcntl:
        raise RuntimeError("This system has no locks that end with a process, so jobs cannot share its GPUs.")
    locks = {index: [_lock(folder, f"{name}-{part}") for part in range(PARTS)] for index, name in enumerate(names)}
    log.info("waiting for a free GPU")
    # One job chooses at a time: two that each held a part of what they need would wait for each other forever.
    with _lock(folder, "turn"):
        while True:
            free = {index: list(filter(_had, of_gpu)) for index, of_gpu in locks.items()}
            emptiest = sorted(free, key=lambda index: -len(free[index]))[:count]
            if all(len(free[index]) >= parts for index in emptiest):
                held = {index: free[index][:parts] for index in emptiest}
                _release(set(chain(*free.values())).difference(*held.values()))
                log.info("got %sGPU %s", PARTS_TAKEN[parts], ", ".join(map(str, held)))
                return held
            time.sleep(SECONDS_BETWEEN_TRIES)


def _had(lock: UnixFileLock) -> bool:
    """Whether a lock is held by now."""
    if not lock.is_locked:
        with suppress(Timeout):
            lock.acquire(blocking=False)
    return lock.is_locked


def _release(locks: Iterable[UnixFileLock]) -> None:
    for lock in locks:
        lock.release()


def _lock(folder: Path, name: str) -> UnixFileLock:
    """A lock of this user's jobs. The system drops it with the process; a soft lock would outlive a killed one."""
    path = folder / f"anchorscope-{os.getuid()}-{name}.lock"
    return UnixFileLock(path, thread_local=False, poll_interval=SECONDS_BETWEEN_TRIES, fallback_to_soft=False)
