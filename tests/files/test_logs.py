"""What a job says about its progress, and why it failed."""

import io
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from anchorscope.files import logs
from anchorscope.files.logs import meter, progress
from small_things import ROOT


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_a_log_gets_plain_lines_with_rate_and_time_left(caplog, capsys, monkeypatch):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(logs, "SECONDS_BETWEEN_LINES", -1)
    with meter(5, "answering") as done:
        done(2)
        done(3)
    first, second, last = messages(caplog)
    assert re.fullmatch(r"answering: 2 of 5, +[\d.]+/s, \d\d:\d\d left", first)
    assert re.fullmatch(r"answering: 5 of 5, +[\d.]+/s, 00:00 left", second)
    assert re.fullmatch(r"answering: 5 done in \d+\.\d s", last)
    assert capsys.readouterr().err == "", "a screen that is no terminal has the log's lines alone"


def test_between_the_lines_only_a_terminal_is_told(caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    list(progress(range(3), 3, "drawing"))
    assert len(messages(caplog)) == 1
    assert "drawing: 3 of 3" in screen.getvalue()


def test_without_a_log_the_screen_is_told_wherever_it_is():
    words = "from anchorscope.files.logs import progress; list(progress(range(3), 3, 'fitting'))"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True)
    assert "fitting: 3 of 3" in done.stderr


JOB = """
import json, sys
from anchorscope.files.logs import configure_logging
from anchorscope.questions.local_rows import read_lines

configure_logging("job.log")
"""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("read_lines('mine.jsonl')", "mine.jsonl is empty."),
        ("raise ValueError(\n    'mine.csv has no usable question.'\n)", "mine.csv has no usable question."),
    ],
    ids=["in the library", "in a script"],
)
def test_an_error_that_we_raise_is_one_sentence_without_a_traceback(line, said, tmp_path):
    (tmp_path / "mine.jsonl").touch()
    done, log = fail(line, tmp_path)
    assert re.fullmatch(rf"[-\d]+ [:,\d]+ ERROR {re.escape(said)}\n", log)
    assert done.stderr == log


@pytest.mark.parametrize(("log", "shown"), [("job.log", ["WARNING"]), (os.devnull, ["INFO", "WARNING"])])
def test_what_a_log_keeps_is_not_printed_unless_it_is_a_warning(log, shown, tmp_path):
    words = JOB.replace("job.log", log) + "import logging; logging.info('as planned'); logging.warning('slower')"
    done = subprocess.run([sys.executable, "-c", words], cwd=tmp_path, capture_output=True, text=True)
    assert re.findall("INFO|WARNING", done.stderr) == shown
    if log == "job.log":
        assert re.findall("INFO|WARNING", (tmp_path / log).read_text()) == ["INFO", "WARNING"]


@pytest.mark.parametrize("line", ["{}['no such key']", "json.loads('{')"], ids=["a bug of ours", "in another library"])
def test_any_other_error_has_its_traceback(line, tmp_path):
    assert "Traceback (most recent call last)" in fail(line, tmp_path)[1]


def fail(line: str, folder: Path) -> tuple[subprocess.CompletedProcess, str]:
    """A job that ends with a line; and its log."""
    (folder / "job.py").write_text(JOB + line)
    done = subprocess.run([sys.executable, "job.py"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 1
    return done, (folder / "job.log").read_text(encoding="utf-8")


def test_what_a_job_imports_is_not_searched_for_garbage():
    words = """
import gc, os
from anchorscope import job
before = gc.isenabled()
job.begin(os.devnull)
print(before, gc.isenabled(), gc.get_freeze_count() > 0)
"""
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True)
    assert done.stdout == "False True True\n"


def test_every_script_imports_that_before_all_else_of_the_library():
    for script in (ROOT / "scripts").glob("*.py"):
        imports = [line for line in script.read_text(encoding="utf-8").splitlines() if line.startswith("from anchors")]
        assert imports[0] == "from anchorscope import job", script.name
