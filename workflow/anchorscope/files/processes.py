"""Processes that work for a job: each runs a module, which reads what it is given and writes what it found."""

import subprocess
import sys


def run_apart(module: str, given: bytes) -> bytes:
    """What a module writes, run in a process of its own, of what it is given. What goes wrong is said in its words."""
    done = subprocess.run([sys.executable, "-m", module], input=given, capture_output=True)
    if done.returncode < 0:
        raise RuntimeError(f"A process that ran {module} was killed.")
    if done.returncode:
        messages = done.stderr.decode().strip().splitlines()
        raise RuntimeError(messages[-1] if messages else f"A process that ran {module} ended and did not say why.")
    return done.stdout
