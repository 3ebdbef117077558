"""Which GPUs this machine has, and which of them a job may take."""

import os
import time
from pathlib import Path
from typing import IO

from anchorscope.logs import log

try:
    import fcntl
except ImportError:  # on Windows, where only a GPU makes it missed
    fcntl = None

SECONDS_BETWEEN_TRIES = 0.5


def gpu_count() -> int:
    """How many NVIDIA cards this process may use, asked without loading a deep-learning library."""
    visible = os.getenv("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([name for name in visible.split(",") if name.strip() not in ("", "-1")])
    return len(list(Path("/dev").glob("nvidia[0-9]*")))


def claim(names: list[str], count: int, folder: Path) -> dict[int, IO | None]:
    """Take `count` of the named cards that no other job holds, and wait while there are too few.

    Returns each card's place in `names` with the lock that holds it; closing the lock, or the end of
    the process, however it ends, frees the card. Where the system has no such locks, nobody is kept out.
    """
    if count > len(names):
        raise RuntimeError(f"{count} GPUs are needed to hold the model, and {len(names)} can be used here.")
    if fcntl is None:
        log.warning("this system has no locks that end with a process: other jobs may use the same GPU")
        return dict.fromkeys(range(count))
    held: dict[int, IO] = {}
    # One job chooses at a time: two that each held a part of what they need would wait for each other for ever.
    with open(folder / f"anchorscope-{os.getuid()}-turn.lock", "w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        while True:
            for place, name in enumerate(names):
                if place not in held and len(held) < count:
                    lock = _try(folder / f"anchorscope-{os.getuid()}-{name}.lock")
                    held |= {place: lock} if lock else {}
            if len(held) == count:
                return held
            log.info("waiting for a free GPU")
            time.sleep(SECONDS_BETWEEN_TRIES)


def _try(path: Path) -> IO | None:
    lock = open(path, "w")  # noqa: SIM115 (stays open as long as the card is held)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock
