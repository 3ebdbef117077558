"""What a run prints: one line for each finished job, errors and warnings. Snakemake's own log file has everything.

Snakemake finds this package by its name; the default profile asks for it with `logger: anchorscope`.
"""

import os
import sys
import textwrap
import time
from logging import WARNING, LogRecord

from snakemake.logging import ColorizingTextHandler, DefaultFormatter
from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

from snakemake_logger_plugin_anchorscope.time_left import Work, duration, rough

REPORT = "results/report.html"
WIDTH = 120
NO_BREAK = "\N{NO-BREAK SPACE}"
WIDTH_OF_NAME = 70
WIDTH_OF_RUNNING = 40
# A job that shows its own progress on a terminal writes over the line that names it, so the cursor stays in that line.
CLEAR_LINE = "\r\x1b[K"
SHOWN = (None, LogEvent.ERROR, LogEvent.JOB_ERROR, LogEvent.GROUP_ERROR, LogEvent.SHELLCMD)
# Messages that say nothing about this run's jobs.
NOISE = (
    "Assuming unrestricted shared filesystem",
    "Building DAG of jobs",
    "Conda environments: ignored",
    "Group jobs: inactive",
    "Provided cores:",
    "Provided resources:",
    "Removing temporary output",
    "Rules claiming more threads",
    "Select jobs to execute",
    "Singularity containers: ignored",
    "Using shell:",
    "host:",
)


def is_shown(record: LogRecord) -> bool:
    """Whether Snakemake's own text of a message is printed."""
    told = getattr(record, "event", None) in SHOWN and not str(record.msg).startswith(NOISE)
    return record.levelno >= WARNING or told


def cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


class LogHandler(LogHandlerBase):
    """A dry run, `--verbose` and `--debug-dag` are left to Snakemake: it prints by itself where nobody else does."""

    writes_to_file = False
    has_filter = False  # Snakemake's own then obeys --quiet
    has_formatter = True
    needs_rulegraph = False

    def __post_init__(self) -> None:
        asked = self.common_settings
        self.snakemake = ColorizingTextHandler(nocolor=asked.nocolor, stream=sys.stderr)
        self.snakemake.setFormatter(DefaultFormatter(asked.quiet, asked.show_failed_logs))
        self.terminal = self.snakemake.can_color_tty()
        self.work = Work()
        self.names: dict[int, str] = {}
        self.reporting: dict[int, str] = {}  # by job, where it writes the report
        self.report: str | None = None
        self.done = 0
        self.total = 0

    @property
    def writes_to_stream(self) -> bool:
        asked = self.common_settings
        return not (asked.dryrun or asked.verbose or asked.debug_dag)

    def emit(self, record: LogRecord) -> None:
        """Print what there is to say about a record; a mistake made here is printed and does not stop the run."""
        if not self.writes_to_stream:
            return
        try:
            text = self.take(record)
            if text:
                self.print(text)
            elif is_shown(record):
                self.print("", end="")
                self.snakemake.emit(record)
            self.name_running()
        except Exception:
            self.handleError(record)

    def take(self, record: LogRecord) -> str | None:
        """Keep the books, and say what this record adds."""
        now, facts = record.created, record.__dict__
        match facts.get("event"):
            case LogEvent.RUN_INFO:
                return self.plan(facts["stats"])
            case LogEvent.PROGRESS:
                self.total = facts["total"]
            case LogEvent.JOB_INFO:
                rule, wildcards = facts["rule_name"], (facts["wildcards"] or {}).values()
                self.names[facts["jobid"]] = " ".join([rule, *(str(value) for value in wildcards if value)])
                if REPORT in facts.get("output", ()):
                    self.reporting[facts["jobid"]] = os.path.abspath(REPORT)
                self.work.start(facts["jobid"], rule, now)
            case LogEvent.JOB_ERROR:
                self.work.fail(facts["jobid"])
            case LogEvent.JOB_FINISHED:
                self.report = self.reporting.get(facts["job_id"], self.report)
                return self.finish(facts["job_id"], now)
        return None

    def plan(self, stats: dict[str, int]) -> str:
        self.work.planned.update({rule: count for rule, count in stats.items() if rule != "total"})
        self.total = self.work.planned.total()
        rules = ", ".join(f"{count}{NO_BREAK}{rule}" for rule, count in self.work.planned.items())
        return textwrap.fill(f"{self.total} jobs: {rules}", WIDTH, subsequent_indent="    ").replace(NO_BREAK, " ")

    def finish(self, job: int, now: float) -> str:
        """The line of a finished job. Its rule is not known where `--quiet rules` keeps it from us."""
        self.done += 1
        counted = f"{self.done:{len(str(self.total))}} of {self.total}"
        line = f"{time.strftime('%H:%M:%S', time.localtime(now))}  {counted}"
        taken = self.work.finish(job, now)
        if taken is None:
            return line
        line += f"  {cut(self.names[job], WIDTH_OF_NAME)}, {duration(taken)}"
        left = self.work.left(now)
        if left is None or self.done >= self.total:
            return line
        # Jobs that wait for a failed one will not run; which they are is not known here.
        return f"{line}, {rough(left)} left{' at most' if self.work.failed else ''}"

    def print(self, text: str, end: str = "\n") -> None:
        self.snakemake.stream.write((CLEAR_LINE if self.terminal else "") + text + end)
        self.snakemake.flush()

    def name_running(self) -> None:
        """On a terminal, the last line says what is running, until something else is written there."""
        if self.terminal and self.work.running:
            rules = dict.fromkeys(rule for rule, _ in self.work.running.values())
            self.print(cut(f"running: {', '.join(rules)}", WIDTH_OF_RUNNING), end="")

    def close(self) -> None:
        """Called once or more often, when all else has been said."""
        if self.report:
            self.print(f"The report is {self.report}.")
            self.report = None
        elif self.terminal and self.writes_to_stream:
            self.print("", end="")
        super().close()
