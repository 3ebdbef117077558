"""Processes that work for a job."""

import pytest

from anchorscope.files.processes import run_apart


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
