"""Files that are either whole or absent: write beside the target, then rename. And what may be wrong with a disk."""

import os
import platform
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from anchorscope.files.faults import with_those_behind

# Every library passes on the system's message, but not all pass on its error number.
DISK_FULL = ("No space left on device", "Disk quota exceeded", "not enough space on the disk")  # the last is Windows

TEMPORARY = ("TMPDIR", "TMP", "TEMP")  # variables that name the folder for temporary files
TRIED = 100_000  # bytes, more than a scheduler's plan has


@contextmanager
def atomic(target: Path | str) -> Iterator[Path]:
    """Yield a temporary path beside `target`; rename it to `target` only if the block succeeds.

    Its bytes reach the disk before its name does, so a power cut cannot leave an empty file under that name.
    """
    target = Path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    # No other machine or process uses the same name.
    temporary = target.with_name(f".{target.name}.{platform.node()}.{os.getpid()}.part")
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


@contextmanager
def explaining_full_disk(target: Path | str) -> Iterator[None]:
    """Turn any library's error about a full disk into one sentence that names `target`.

    A library may stumble when it closes what it could not write: then the disk's error is behind its last one.
    """
    try:
        yield
    except Exception as error:
        if not any(words in str(one) for one in with_those_behind(error) for words in DISK_FULL):
            raise
        raise OSError(
            f"{target} could not be written because its disk is full; make room there and run the same command again, "
            "finished files are kept."
        ) from error


def temporary_fault() -> str | None:
    """What is wrong with the folder for temporary files: Snakemake would end in a traceback there.

    One that does not exist is fine: everybody takes another one instead.
    """
    named = {variable: os.environ[variable] for variable in TEMPORARY if os.path.isdir(os.getenv(variable, ""))}
    for variable, folder in named.items():
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(bytes(TRIED))
                file.flush()
        except OSError as error:
            return (
                f"{variable} names {folder}, where no temporary file can be written ({error.strerror}); "
                "make room there, or set it to another folder."
            )
    return None


def remove_leftovers(target: Path) -> None:
    """Remove temporary files for `target` whose processes, on this machine, were killed while they wrote."""
    for file in target.parent.glob(f".{target.name}.{platform.node()}.*.part"):
        process = file.name.split(".")[-2]
        if process.isdigit() and not _alive(int(process)):
            file.unlink(missing_ok=True)


def _alive(process: int) -> bool:
    """Whether a process is, or may be, alive. On Windows, signal 0 would interrupt it instead of asking."""
    if os.name == "nt":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it belongs to another user
        pass
    return True
