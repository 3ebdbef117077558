"""What a job says about its progress."""

import io
import logging
import re
import sys

import pytest

from anchorscope.files import logs
from anchorscope.files.logs import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_a_log_gets_plain_lines_with_rate_and_time_left(caplog, capsys, monkeypatch):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(logs, "SECONDS_BETWEEN_LINES", -1)
    assert list(progress(["ab", "cde"], 5, "answering", weight=len)) == ["ab", "cde"]
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
