"""What a run prints: one line per job and an honest guess at the time left; the log file has everything."""

import io
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from snakemake.settings.types import OutputSettings

from small_run import SNAKEMAKE
from small_things import ROOT
from snakemake_logger_plugin_anchorscope import LogHandler
from snakemake_logger_plugin_anchorscope.time_left import (
    TARGETS,
    WEIGHT_OF_OTHERS,
    WEIGHTS,
    Work,
    duration,
    rough,
    weight,
)

SNAKEFILE = """
MANY = [f"a_rather_long_name_of_a_file_{number}.txt" for number in range(40)]

rule all:
    input: "sum.txt"

rule source:
    output: MANY
    shell: "touch {output}"

rule make:
    input: MANY
    output: "out/{model}/{dataset}.txt"
    log: "logs/{model}/{dataset}.log"
    shell: "echo {wildcards.dataset} > {output}"

rule total_up:
    input: expand("out/tiny/{dataset}.txt", dataset=["one", "two"])
    output: "sum.txt"
    shell: "cat {input} > {output}"

rule broken:
    output: "broken.txt"
    log: "logs/broken.log"
    shell: "exit 3"
"""
LINE = re.compile(r"\d\d:\d\d:\d\d  (\d) of 5  (\w+(?: \w+)*), \d+ s(?:, less than a minute left)?")


def run(folder: Path, *options: str) -> subprocess.CompletedProcess:
    (folder / "Snakefile").write_text(SNAKEFILE)
    # The hash seed orders the files that a reason names.
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow"), "PYTHONHASHSEED": "0"}
    command = [*SNAKEMAKE, "--cores", "1", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)


def run_quietly(folder: Path, *options: str) -> subprocess.CompletedProcess:
    return run(folder, *options, "--logger", "anchorscope")


def log_file(folder: Path) -> str:
    (file,) = (folder / ".snakemake/log").glob("*.log")
    return file.read_text()


def without_times(text: str) -> str:
    return re.sub(r"\[.*\d\d:\d\d:\d\d \d+\]|Date: .*|Workflow ID: .*|Command: .*", "", text)


def test_a_run_prints_one_line_per_job_and_the_log_file_has_the_rest(tmp_path):
    done = run_quietly(tmp_path)
    assert done.returncode == 0, done.stderr
    plan, *jobs, complete, elapsed = done.stderr.splitlines()
    assert sorted(plan.removeprefix("5 jobs: ").split(", ")) == ["1 all", "1 source", "1 total_up", "2 make"]
    matches = [LINE.fullmatch(line) for line in jobs]
    assert [match[1] for match in matches] == ["1", "2", "3", "4", "5"]
    assert sorted(match[2] for match in matches) == ["all", "make tiny one", "make tiny two", "source", "total_up"]
    assert complete.startswith("Complete log(s): ")
    assert elapsed.startswith("Elapsed time: ")
    reasons = re.findall("^    reason: .*", log_file(tmp_path), re.M)
    assert len(reasons) == 5
    assert max(map(len, reasons)) > 1000
    assert "Building DAG of jobs" in log_file(tmp_path)
    again = run_quietly(tmp_path)
    assert "Nothing to be done" in again.stderr


def test_a_failed_job_is_shown_with_its_log_and_the_others_go_on(tmp_path):
    done = run_quietly(tmp_path, "broken.txt", "sum.txt", "--keep-going")
    assert done.returncode == 1
    assert "Error in rule broken:" in done.stderr
    assert "log: logs/broken.log (check log file(s) for error details)" in done.stderr
    assert "At least one job did not complete successfully." in done.stderr
    assert "4 of 5  total_up, " in done.stderr
    assert "reason:" not in done.stderr


@pytest.mark.parametrize("options", [["--dry-run"], pytest.param(["--verbose"], marks=pytest.mark.slow)])
def test_a_dry_run_and_a_verbose_one_print_what_snakemake_prints(options, tmp_path):
    quiet, plain = run_quietly(tmp_path, "--forceall", *options), run(tmp_path, "--forceall", *options)
    assert quiet.returncode == plain.returncode == 0
    if options == ["--dry-run"]:
        assert without_times(quiet.stdout) == without_times(plain.stdout)
        assert quiet.stderr == plain.stderr
    else:
        assert quiet.stderr.count("reason: ") == plain.stderr.count("reason: ") == 5


def test_what_snakemake_is_told_to_be_quiet_about_is_not_printed(tmp_path):
    assert run_quietly(tmp_path, "--quiet", "all").stderr == ""
    assert "total_up" not in run_quietly(tmp_path, "--forceall", "--quiet", "progress").stderr
    counted = run_quietly(tmp_path, "--forceall", "--quiet", "rules").stderr
    assert len(re.findall(r"^\d\d:\d\d:\d\d  \d of 5$", counted, re.M)) == 5


def test_the_default_profile_asks_for_it_only_where_it_is_installed(tmp_path):
    profile = str(ROOT / "workflow/profiles/default")
    assert "5 of 5  all" in run(tmp_path, "--profile", profile).stderr
    without = (
        "import runpy, sys; sys.path[:] = [p for p in sys.path if not p.rstrip('/').endswith('workflow')]; "
        "sys.argv[0] = 'snakemake'; runpy.run_module('snakemake', run_name='__main__')"
    )
    command = [sys.executable, "-c", without, "--cores", "1", "--forceall", "--profile", profile]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "5 of 5 steps (100%) done" in done.stderr


def record(event: str | None, now: float, text: str = "", level: int = logging.INFO, **facts) -> logging.LogRecord:
    return logging.makeLogRecord({"event": event, "created": now, "msg": text, "levelno": level, **facts})


def started(job: int, rule: str, now: float, **wildcards: str) -> logging.LogRecord:
    return record("job_info", now, jobid=job, rule_name=rule, wildcards=wildcards)


@pytest.fixture
def handler() -> LogHandler:
    handler = LogHandler(OutputSettings(nocolor=True), None)
    handler.snakemake.stream = io.StringIO()
    return handler


def printed(handler: LogHandler) -> list[str]:
    return handler.snakemake.stream.getvalue().splitlines()


def test_the_time_left_is_the_expected_seconds_over_the_jobs_side_by_side(handler):
    """Two of four answers took 120 s each, side by side, and one more has run for 60 s."""
    stats = {"answer": 4, "extract": 4, "report": 1, "total": 9}
    handler.emit(record("run_info", 0, stats=stats))
    handler.emit(started(1, "answer", 0, model="tiny", dataset="one", more=""))
    handler.emit(started(2, "answer", 0, model="tiny", dataset="two"))
    handler.emit(started(3, "answer", 60, model="tiny", dataset="three"))
    handler.emit(record("job_finished", 120, job_id=1))
    handler.emit(record("job_finished", 120, job_id=2))
    # By hand: answers take 120 s, twice their weight of 60. So extract takes 2 * 95 and report 2 * 12 seconds.
    # To do are 60 s of the running answer, 120 s of the last one, 4 * 190 s of extract, and 24 s of the report, alone.
    # So far 300 s of jobs were done in 120 s: 2.5 side by side. 940 / 2.5 + 24 = 400 s.
    assert handler.work.left(120) == pytest.approx(400)
    plan, first, second = printed(handler)
    assert plan == "9 jobs: 4 answer, 4 extract, 1 report"
    assert first.endswith("  1 of 9  answer tiny one, 2 min 0 s, about 7 min left")
    assert second.endswith("  2 of 9  answer tiny two, 2 min 0 s, about 7 min left")


def test_nothing_is_guessed_before_a_tenth_of_the_work_is_done():
    work = Work()
    work.planned.update({"normalize": 10, "answer": 1})
    assert work.left(0) is None
    for number in range(4):
        work.start(number, "normalize", 2.0 * number)
        work.finish(number, 2.0 * number + 2)
    # 4 of 10 jobs, but 8 s of 20 s + 60 s: a tenth of the whole is reached.
    assert work.left(8) == pytest.approx(12 + 60)
    work.planned["extract"] = 1
    assert work.left(8) is None


def test_a_rule_that_nobody_has_timed_counts_as_the_mean_of_the_others():
    work = Work()
    work.planned.update({"answer": 1, "unheard_of": 1})
    work.start(1, "answer", 0)
    work.finish(1, 60)
    assert work.left(60) == pytest.approx(WEIGHT_OF_OTHERS)


def test_the_rules_that_were_timed_are_rules_of_the_workflow():
    files = [ROOT / "Snakefile", *(ROOT / "workflow/rules").glob("*.smk")]
    text = "\n".join(file.read_text() for file in files)
    rules = set(re.findall(r"^ *rule (\w+):|^ *use rule \w+ as (\w+) with:", text, re.M))
    assert {*WEIGHTS, *TARGETS} <= {one or other for one, other in rules}


def test_a_rule_has_its_weight_in_another_workflow_too():
    assert weight("anchorscope_extract") == WEIGHTS["extract"]


def test_a_job_that_runs_longer_than_expected_is_expected_of_the_others_of_its_rule():
    work = Work()
    work.planned.update({"answer": 1, "probe": 2})
    work.start(1, "answer", 0)
    work.finish(1, 60)
    work.start(2, "probe", 60)
    assert work.left(160) == pytest.approx(100)


def test_failed_late_and_unknown_jobs_do_not_break_the_estimate(handler):
    handler.emit(record("run_info", 0, stats={"answer": 3, "total": 3}))
    handler.emit(started(1, "answer", 0))
    handler.emit(record("job_finished", 60, job_id=1))
    handler.emit(started(2, "answer", 60))
    handler.emit(record("job_finished", 60, job_id=99))  # nobody said that it started
    handler.snakemake.setFormatter(logging.Formatter("%(message)s"))
    handler.emit(record("job_error", 90, "it failed", logging.ERROR, jobid=2))
    handler.emit(started(4, "unplanned", 90))
    handler.emit(record("job_finished", 150, job_id=4))
    handler.emit(record("progress", 150, done=3, total=5))
    assert handler.total == 5
    *_, unknown, error, late = printed(handler)
    assert unknown.endswith("  2 of 3")
    assert error == "it failed"
    assert "3 of 3  unplanned, 1 min 0 s" in late
    # Failed jobs take no more time: one answer is left. 120 s of jobs were done in 150 s.
    assert handler.work.left(150) == pytest.approx(60 / (120 / 150))
    handler.emit(started(2, "answer", 150))
    assert not handler.work.failed, "it is tried again"


def test_after_a_failure_the_guess_is_the_most_that_it_can_be(handler):
    handler.emit(record("run_info", 0, stats={"answer": 2, "draw": 2, "total": 4}))
    handler.emit(started(1, "answer", 0))
    handler.emit(started(2, "answer", 0))
    handler.work.fail(1)
    handler.emit(record("job_finished", 60, job_id=2))
    assert printed(handler)[-1].endswith("answer, 1 min 0 s, about 1 min left at most")


def test_a_mistake_of_the_handler_does_not_reach_the_run(handler, capsys):
    handler.emit(record("job_finished", 0))
    assert "KeyError: 'job_id'" in capsys.readouterr().err


def test_noise_is_left_out_and_warnings_and_other_messages_are_shown(handler):
    handler.emit(record(None, 0, "Building DAG of jobs..."))
    handler.emit(record("resources_info", 0, "Provided cores: 2"))
    handler.emit(record(None, 0, "Trying to restart job 3."))
    handler.emit(record(None, 0, "Building DAG of jobs takes long", logging.WARNING))
    assert printed(handler) == ["Trying to restart job 3.", "Building DAG of jobs takes long"]


def test_no_line_is_longer_than_a_screen_is_wide(handler):
    rules = {f"a_rule_with_a_long_name_{number}": 1 for number in range(20)}
    handler.emit(record("run_info", 0, stats={**rules, "total": 20}))
    handler.emit(started(1, "a_rule_with_a_long_name_1", 0, model="m" * 200))
    handler.emit(record("job_finished", 5000, job_id=1))
    assert max(map(len, printed(handler))) <= 120
    assert all(line.endswith((",", "19")) for line in printed(handler)[:-1]), "a rule stays with its number"


def test_seconds_in_words():
    assert [duration(s) for s in (0.2, 59.4, 105, 7500)] == ["0 s", "59 s", "1 min 45 s", "2 h 5 min"]
    guesses = [rough(s) for s in (10, 50, 400, 800, 3500, 5000)]
    assert guesses == [
        "less than a minute", "about 1 min", "about 7 min", "about 15 min", "about 60 min", "about 1.5 h"
    ]  # fmt: skip
