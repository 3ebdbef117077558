"""What every job that fits or applies probes is told, and what it does first."""

import ctypes
import os
from dataclasses import dataclass
from typing import Any

import torch

from anchorscope.extract.axes import Headline

M_MMAP_THRESHOLD = -3  # glibc's option for the size from which a block is mapped, and so returned when freed


@dataclass(frozen=True)
class Fitting:
    """How a job fits probes."""

    headline: Headline  # the component and position that matter most
    folds: int
    seed: int  # of folds and halves
    on_gpu: bool  # whether a GPU is used
    code: str  # fingerprint


def begin_fitting(params: Any, threads: int, gpus: int) -> Fitting:
    """Take so many threads, and a GPU if one is given and works; a rule's params are named as the fields are."""
    torch.set_num_threads(threads)
    give_back_freed_blocks()
    return Fitting(
        Headline.from_json(params.headline),
        folds=params.folds,
        seed=params.seed,
        on_gpu=gpus > 0 and torch.cuda.is_available(),
        code=params.code,
    )


def give_back_freed_blocks(size: int = 2**20) -> None:
    """Return blocks of `size` bytes and more to the system as soon as they are freed.

    By default, glibc keeps ever larger blocks for later, and a job's memory grows by what it no longer uses.
    Does nothing without glibc.
    """
    library = ctypes.CDLL(None) if os.name == "posix" else None
    if library and hasattr(library, "gnu_get_libc_version"):
        library.mallopt(M_MMAP_THRESHOLD, size)
