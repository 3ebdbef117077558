"""What is wrong with a file, or what a library says of it, in words short enough for a sentence."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

LONGEST = 200  # characters
LARGEST_TEXT = 256 * 2**20  # bytes of a file beside a model's weights; the largest published tokenizers have 35 million


def reason_of(error: BaseException) -> str:
    """The error's message on one line of limited length, without its last full stop; its kind where it says nothing."""
    return shortened(str(error)).rstrip(".") or type(error).__name__


def with_those_behind(error: BaseException) -> Iterator[BaseException]:
    """An error, and those that it was raised from or that were being handled when it came."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__ or found.__context__


def shortened(text: object, longest: int = LONGEST) -> str:
    """A text, or a path, on one line of limited length."""
    line = " ".join(str(text).split())
    return line if len(line) <= longest else f"{line[:longest]}…"


def fault_of_file(path: Path | str, largest: int | None = None) -> str | None:
    """What is wrong with a path that should lead to a readable file of at most `largest` bytes; None if nothing is.

    Nothing is opened: a fifo or a device might never end.
    """
    try:
        found = os.stat(os.fspath(path))
    except (TypeError, ValueError):  # a number, or a text with a NUL
        return "is no path"
    except FileNotFoundError:
        return "leads to a file that is gone" if os.path.islink(path) else "does not exist"
    except OSError as error:  # a loop of links, a name that is too long, a folder that may not be entered
        return f"cannot be read ({error.strerror})"
    if not stat.S_ISREG(found.st_mode):
        return "is a folder" if stat.S_ISDIR(found.st_mode) else "is not a plain file but a fifo, socket or device"
    if not os.access(path, os.R_OK):
        return "may not be read by you"
    if largest is not None and found.st_size > largest:
        return f"has {found.st_size:,} bytes; at most {largest:,} are read"
    return None


def check_file(path: Path | str, advice: str) -> None:
    """Refuse a path that leads to no readable file; the sentence ends with what to do."""
    if fault := fault_of_file(path):
        raise ValueError(f"{shortened(path)} {fault}; {advice}.")
