"""The C library's way with memory."""

import ctypes
import os

M_MMAP_THRESHOLD = -3  # glibc's name for the size from which a block is mapped, and so given back when it is freed


def give_back_freed_blocks(size: int = 2**20) -> None:
    """Have blocks of `size` bytes and more returned to the system as soon as they are freed.

    Left to itself, glibc keeps ever larger ones for later, and a job's memory grows by what it no longer uses.
    Does nothing where there is no glibc.
    """
    library = ctypes.CDLL(None) if os.name == "posix" else None
    if hasattr(library, "gnu_get_libc_version"):
        library.mallopt(M_MMAP_THRESHOLD, size)
