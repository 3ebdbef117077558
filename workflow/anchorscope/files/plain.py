"""Whether a path leads to a plain file of a bearable size. Nothing is opened: a fifo or a device might never end."""

import os
import stat
from pathlib import Path

from anchorscope.files.reasons import shortened

LARGEST_TEXT = 256 * 2**20  # bytes of a file beside a model's weights; the largest published tokenizers have 35 million


def fault_of_file(path: Path | str, largest: int | None = None) -> str | None:
    """What is wrong with a path that should lead to a readable file of at most `largest` bytes; None if nothing is."""
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
