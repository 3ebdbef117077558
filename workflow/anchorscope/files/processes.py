"""Processes that work for a job: each runs a module, which reads what it is given and writes what it found."""

import ctypes
import os
import runpy
import signal
import subprocess
import sys

PR_SET_PDEATHSIG = 1  # Linux's option for the signal that a process gets when the one that began it ends


def run_apart(module: str, given: bytes) -> bytes:
    """What a module writes, run in a process of its own, of what it is given. What goes wrong is said in its words.

    On Linux the process ends when this one does, however that ends.
    """
    command = [sys.executable, "-m", __name__, module, str(os.getpid())]
    done = subprocess.run(command, input=given, capture_output=True)
    if done.returncode < 0:
        raise RuntimeError(f"A process that ran {module} was killed.")
    if done.returncode:
        messages = done.stderr.decode().strip().splitlines()
        raise RuntimeError(messages[-1] if messages else f"A process that ran {module} ended and did not say why.")
    return done.stdout


def end_with(parent: int) -> None:
    """End this process when its parent ends, or has ended by now."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            sys.exit(1)


if __name__ == "__main__":
    end_with(parent=int(sys.argv[2]))
    runpy.run_module(sys.argv[1], run_name="__main__")
