"""Processes that work for a job."""

import subprocess
import sys
from pathlib import Path

import pytest

from anchorscope.files.processes import run_apart
from slurm_cluster import until


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A function that makes a module of some lines."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def write(*lines: str) -> str:
        (tmp_path / "worker.py").write_text("\n".join(lines), encoding="utf-8")
        return "worker"

    return write


def test_what_it_is_given_goes_in_and_what_it_found_comes_back(module):
    backwards = module("import sys", "sys.stdout.buffer.write(sys.stdin.buffer.read()[::-1])")
    assert run_apart(backwards, bytes(range(256)) * 1000) == bytes(range(255, -1, -1)) * 1000


def test_what_went_wrong_is_said_in_its_last_words(module):
    with pytest.raises(RuntimeError, match=r"^ValueError: No such model\.$"):
        run_apart(module("print('drawing')", "raise ValueError('No such model.')"), b"")


def test_that_it_was_killed_is_said(module):
    with pytest.raises(RuntimeError, match="A process that ran worker was killed"):
        run_apart(module("import os, signal", "os.kill(os.getpid(), signal.SIGKILL)"), b"")


def test_that_it_did_not_say_why_it_ended_is_said(module):
    with pytest.raises(RuntimeError, match="A process that ran worker ended and did not say why"):
        run_apart(module("raise SystemExit(3)"), b"")


def runs(process: int) -> bool:
    """Whether a process is there, and not merely waits to be looked at by its parent."""
    try:
        return Path("/proc", str(process), "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell a process that its parent ended")
def test_it_ends_when_the_job_is_killed(module, tmp_path):
    number = tmp_path / "number"
    worker = module(
        "import os, pathlib, time",
        f"pathlib.Path({str(tmp_path / 'new')!r}).write_text(str(os.getpid()))",
        f"os.rename({str(tmp_path / 'new')!r}, {str(number)!r})",
        "time.sleep(600)",
    )
    code = f"from anchorscope.files.processes import run_apart; run_apart({worker!r}, b'')"
    job = subprocess.Popen([sys.executable, "-c", code])
    try:
        until(number.exists, "the worker begins")
    finally:
        job.kill()
        job.wait()
    until(lambda: not runs(int(number.read_text(encoding="utf-8"))), "the worker ends")
