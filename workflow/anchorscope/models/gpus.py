"""Which GPUs this machine has, and which of them a job may take.

Jobs import and plan side by side. Each takes its GPUs when it is ready to compute, and gives them back, their memory
freed, when its last kernel has run.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import Timeout, UnixFileLock, has_fcntl

from anchorscope.files.logs import log

if TYPE_CHECKING:
    import torch

SECONDS_BETWEEN_TRIES = 0.02


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


def take(count: int) -> dict[int, UnixFileLock]:
    """Wait for `count` GPUs that no other job of this machine holds; by number, each with the lock that holds it."""
    return claim([str(gpu.uuid) for gpu in gpus()], count, Path(tempfile.gettempdir()))


def give_back(held: dict[int, UnixFileLock]) -> None:
    """Let other jobs have the GPUs. Everything that was on them must be gone."""
    import torch

    for number in held:
        torch.cuda.synchronize(number)
    torch.cuda.empty_cache()
    for lock in held.values():
        lock.release()
    log.info("gave back GPU %s", ", ".join(map(str, held)))


@contextmanager
def one_gpu() -> Iterator["torch.device"]:
    """A GPU for as long as the block runs, which must leave nothing on it."""
    import torch

    held = take(1)
    try:
        yield torch.device("cuda", *held)
    finally:
        give_back(held)


def claim(names: list[str], count: int, folder: Path) -> dict[int, UnixFileLock]:
    """Take `count` of the named GPUs that no other job holds, and wait while there are too few.

    Returns each GPU's index in `names` with the lock that holds it. Releasing the lock frees the GPU, and so does
    the end of the process, however it ends.
    """
    if count > len(names):
        raise RuntimeError(f"{count} GPUs are needed to hold the model, and {len(names)} can be used here.")
    if not has_fcntl:
        raise RuntimeError("This system has no locks that end with a process, so jobs cannot share its GPUs.")
    held: dict[int, UnixFileLock] = {}
    log.info("waiting for a free GPU")
    # One job chooses at a time: two that each held a part of what they need would wait for each other forever.
    with _lock(folder, "turn"):
        while True:
            for index, name in enumerate(names):
                if index not in held and len(held) < count:
                    with suppress(Timeout):
                        lock = _lock(folder, name)
                        lock.acquire(blocking=False)
                        held[index] = lock
            if len(held) == count:
                log.info("got GPU %s", ", ".join(map(str, held)))
                return held
            time.sleep(SECONDS_BETWEEN_TRIES)


def _lock(folder: Path, name: str) -> UnixFileLock:
    """A lock of this user's jobs. The system drops it with the process; a soft lock would outlive a killed one."""
    path = folder / f"anchorscope-{os.getuid()}-{name}.lock"
    return UnixFileLock(path, thread_local=False, poll_interval=SECONDS_BETWEEN_TRIES, fallback_to_soft=False)
