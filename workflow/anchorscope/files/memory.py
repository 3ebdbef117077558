"""How the C library frees memory."""

import ctypes
import os

M_MMAP_THRESHOLD = -3  # glibc's option for the size from which a block is mapped, and so returned when freed


def give_back_freed_blocks(size: int = 2**20) -> None:
    """Return blocks of `size` bytes and more to the system as soon as they are freed.

    By default, glibc keeps ever larger blocks for later, and a job's memory grows by what it no longer uses.
    Does nothing without glibc.
    """
    library = ctypes.CDLL(None) if os.name == "posix" else None
    if library and hasattr(library, "gnu_get_libc_version"):
        library.mallopt(M_MMAP_THRESHOLD, size)
