"""Which GPUs this machine has, and which of them a job holds.

Jobs import and plan side by side. Each takes its cards when it is ready to compute. It frees their memory and gives
them back when its last kernel has run.
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
except ImportError:  # on Windows; only GPUs need it
    fcntl = None  # type: ignore[assignment]
if TYPE_CHECKING:
    import torch

SECONDS_BETWEEN_TRIES = 0.02


def gpu_count() -> int:
    """How many NVIDIA cards this process may use, found out without loading torch."""
    visible = os.getenv("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([name for name in visible.split(",") if name.strip() not in ("", "-1")])
    return len(list(Path("/dev").glob("nvidia[0-9]*")))


def cards() -> list:
    """What torch knows about each card. Asking puts nothing on a card."""
    import torch  # slow to import, and a workflow starts without it

    return [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]


def take(count: int) -> dict[int, IO]:
    """Wait for `count` cards that no other job on this machine holds: the number of each, with its lock."""
    return claim([str(card.uuid) for card in cards()], count, Path(tempfile.gettempdir()))


def give_back(held: dict[int, IO]) -> None:
    """Let other jobs have the cards. Nothing may be left on them."""
    import torch

    for number in held:
        torch.cuda.synchronize(number)
    torch.cuda.empty_cache()
    for lock in held.values():
        lock.close()


@contextmanager
def one_card() -> Iterator["torch.device"]:
    """A card for as long as the block runs. The block must leave nothing on it."""
    import torch

    held = take(1)
    try:
        yield torch.device("cuda", *held)
    finally:
        give_back(held)


def claim(names: list[str], count: int, folder: Path) -> dict[int, IO]:
    """Take `count` of the named cards that no other job holds, and wait while there are too few.

    Returns the index of each card in `names`, with its lock. Closing the lock frees the card, and so does the end of
    the process, however it ends.
    """
    if count > len(names):
        raise RuntimeError(f"{count} GPUs are needed to hold the model, and {len(names)} can be used here.")
    if fcntl is None:
        raise RuntimeError(
            "Jobs cannot share GPUs on this system: it has no file locks that end with the process (fcntl)."
        )
    held: dict[int, IO] = {}
    log.info("waiting for a free GPU")
    # One job chooses at a time. Two that each held some of the cards they need would wait for each other for ever.
    with open(folder / f"anchorscope-{os.getuid()}-turn.lock", "w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        while True:
            for index, name in enumerate(names):
                if index not in held and len(held) < count:
                    lock = _try(folder / f"anchorscope-{os.getuid()}-{name}.lock")
                    held |= {index: lock} if lock else {}
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
