"""A chat template comes with the model and is a program: it is rendered in a process of its own, under limits."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from anchorscope.files.reasons import reason_of

SECONDS = 2  # of a processor; templates take a few milliseconds
MEMORY = 2**30  # bytes beyond what this process has
LONGEST = 400_000  # bytes of a rendered prompt, far more than any model reads
STATM = Path("/proc/self/statm")  # only Linux has it, and only there memory is limited


def render_within_limits(render: Callable[[], str]) -> str:
    """What `render` returns. A template that fails, or takes too long or too much, is a ValueError of one line."""
    if not hasattr(os, "fork"):  # Windows
        return render()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _render_and_exit(render, writer)
    os.close(writer)
    with open(reader, "rb") as pipe:
        said = pipe.read(LONGEST + 2)
    if len(said) > LONGEST + 1:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if len(said) > LONGEST + 1:
        raise ValueError(f"it makes more than {LONGEST:,} bytes")
    if not said:  # the system has ended it
        raise ValueError(f"it takes more than {SECONDS} seconds")
    if said[:1] == b"-":
        raise ValueError(said[1:].decode())
    return said[1:].decode()


def _render_and_exit(render: Callable[[], str], writer: int) -> NoReturn:
    """In the child: write `+` and the text, or `-` and why there is none. Only this ends it."""
    try:
        _limit()
        said = b"+" + render().encode()
    except MemoryError:
        said = b"-it takes more than 1 GB of memory"
    except BaseException as error:
        said = f"-{type(error).__name__}: {reason_of(error)}".encode(errors="replace")
    try:
        with open(writer, "wb") as pipe:
            pipe.write(said)
    finally:
        os._exit(0)


def _limit() -> None:
    import resource  # not on Windows

    limits = {resource.RLIMIT_CPU: SECONDS}
    if STATM.exists():
        limits[resource.RLIMIT_AS] = int(STATM.read_text().split()[0]) * resource.getpagesize() + MEMORY
    for kind, limit in limits.items():
        most = resource.getrlimit(kind)[1]
        lowest = limit if most == resource.RLIM_INFINITY else min(limit, most)
        resource.setrlimit(kind, (lowest, lowest))
