"""What can be wrong with a disk that is written to: it is full, or an earlier job was killed while it wrote."""

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Every library passes on the system's words, but not every one its error number.
FULL = ("No space left on device", "Disk quota exceeded", "not enough space on the disk")  # the last is Windows


@contextmanager
def explaining_full_disk(target: Path | str) -> Iterator[None]:
    """Say in one sentence that `target` could not be written for lack of space."""
    try:
        yield
    except Exception as error:
        if not any(words in str(error) for words in FULL):
            raise
        raise OSError(
            f"{target} could not be written because its disk is full; make room there and run the same command again, "
            "finished files are kept."
        ) from error


def temporary_for(target: Path) -> Path:
    """The name under which this process writes `target`, told apart from those of all other machines and processes."""
    return target.with_name(f".{target.name}.{platform.node()}.{os.getpid()}.part")


def remove_leftovers(target: Path) -> None:
    """Remove the temporary files for `target` of processes of this machine that were killed while they wrote."""
    for file in target.parent.glob(f".{target.name}.{platform.node()}.*.part"):
        process = file.name.split(".")[-2]
        if process.isdigit() and not _alive(int(process)):
            file.unlink(missing_ok=True)


def _alive(process: int) -> bool:
    """Whether a process lives, or may do so: Windows has no signal that only asks, and 0 would interrupt it."""
    if os.name == "nt":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is somebody else's
        pass
    return True
