"""Which GPUs this machine has, and which of them a job may take.

Jobs import and plan side by side. Each takes its cards when it is ready to compute, and gives them back, their memory
freed, when its last kernel has run.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from anchorscope.files.logs import log

try:
    import fcntl
except ImportError:  # on Windows, where only a GPU makes it missed
    fcntl = None
if TYPE_CHECKING:
    import torch

SECONDS_BETWEEN_TRIES = 0.02


def gpu_count() -> int:
    """How many NVIDIA cards this process may use, asked without loading a deep-learning library."""
    visible = os.getenv("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([name for name in visible.split(",") if name.strip() not in ("", "-1")])
    return len(list(Path("/dev").glob("nvidia[0-9]*")))


def cards() -> list:
    """What torch knows of each card; nothing is put on one to find out."""
    import torch  # slow to import, and not needed to start a workflow

    return [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]


def take(count: int) -> dict[int, IO]:
    """Wait for `count` cards that no other job of this machine holds; by number, each with the lock that holds it."""
    return claim([str(card.uuid) for card in cards()], count, Path(tempfile.gettempdir()))


def give_back(held: dict[int, IO]) -> None:
    """Let other jobs have the cards. Everything that was on them must be gone."""
    import torch

    for number in held:
        torch.cuda.synchronize(number)
    torch.cuda.empty_cache()
    for lock in held.values():
        lock.close()


@contextmanager
def one_card() -> Iterator["torch.device"]:
    """A card for as long as the block runs, which must leave nothing on it."""
    import torch

    held = take(1)
    try:
        yield torch.device("cuda", *held)
    finally:
        give_back(held)


def claim(names: list[str], count: int, folder: Path) -> dict[int, IO]:
    """Take `count` of the named cards that no other job holds, and wait while there are too few.

    Returns each card's place in `names` with the lock that holds it; closing the lock, or the end of
    the process, however it ends, frees the card.
    """
    if count > len(names):
        raise RuntimeError(f"{count} GPUs are needed to hold the model, and {len(names)} can be used here.")
    if fcntl is None:
        raise RuntimeError(
            "This system has no locks that end with a process, so that jobs could not share its GPUs out."
        )
    held: dict[int, IO] = {}
    log.info("waiting for a free GPU")
    # One job chooses at a time: two that each held a part of what they need would wait for each other for ever.
    with open(folder / f"anchorscope-{os.getuid()}-turn.lock", "w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        while True:
            for place, name in enumerate(names):
                if place not in held and len(held) < count:
                    lock = _try(folder / f"anchorscope-{os.getuid()}-{name}.lock")
                    held |= {place: lock} if lock else {}
            if len(held) == count:
                log.info("got GPU %s", ", ".join(map(str, held)))
                return held
            time.sleep(SECONDS_BETWEEN_TRIES)


def _try(path: Path) -> IO | None:
    lock = open(path, "w")  # noqa: SIM115 (stays open as long as the card is held)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock
