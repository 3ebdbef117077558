"""Files that are either whole or absent: write beside the target, then rename."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from anchorscope.files.disk import explaining_full_disk, remove_leftovers, temporary_for


@contextmanager
def atomic(target: Path | str) -> Iterator[Path]:
    """Yield a temporary path beside `target`; rename it to `target` only if the block succeeds.

    Its bytes reach the disk before its name does, so a power cut cannot leave an empty file under that name.
    """
    target = Path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_for(target)
    remove_leftovers(target)
    with explaining_full_disk(target):
        try:
            yield temporary
            _to_disk(temporary)
            os.replace(temporary, target)
            with suppress(OSError):  # not every file system can sync a folder
                _to_disk(target.parent)
        finally:
            temporary.unlink(missing_ok=True)


def write_text(target: Path | str, text: str) -> None:
    with atomic(target) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _to_disk(path: Path) -> None:
    """Wait until a file, or a folder's list of names, has reached the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
