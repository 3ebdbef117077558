"""What a job says while it runs: messages and progress, in its log file and on the screen."""

import linecache
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from types import TracebackType
from typing import TypeVar

from tqdm import tqdm

log = logging.getLogger("anchorscope")
SECONDS_BETWEEN_LINES = 10
LINE = "{desc}: {n} of {total}, {rate_noinv_fmt}, {remaining} left"
Thing = TypeVar("Thing")


def configure_logging(path: Path | str) -> None:
    """Log to `path`, and warnings to standard error too; an uncaught error becomes the log's last line, without a
    traceback if we raised it ourselves.

    Where no log is kept, the standard error gets everything, unless it is a terminal: there, log lines would break up
    the progress line.
    """
    to_screen = logging.StreamHandler()
    kept = Path(path) != Path(os.devnull)
    to_screen.setLevel(logging.WARNING if kept or sys.stderr.isatty() else logging.INFO)
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s",
        handlers=[logging.FileHandler(path, mode="w", encoding="utf-8"), to_screen],
        force=True,
    )
    # What the hub client logs about a request may hold a signed address.
    quiet = {"httpx": logging.ERROR, "httpx2": logging.ERROR, "huggingface_hub": logging.ERROR}
    quiet |= dict.fromkeys(("filelock", "matplotlib", "fontTools"), logging.WARNING)
    for chatty, level in quiet.items():
        logging.getLogger(chatty).setLevel(level)

    def log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if raised_here(trace):
            logging.getLogger().error("%s", error)
        else:
            logging.getLogger().error("The job failed, traceback first, reason last.", exc_info=(kind, error, trace))

    sys.excepthook = log_uncaught


def raised_here(trace: TracebackType | None) -> bool:
    """Whether a `raise` of this project led to an error: its sentence, meant for the user, then says everything."""
    frames = list(walk_tb(trace))
    if not frames:
        return False
    frame, line = frames[-1]
    ours = str(frame.f_globals.get("__name__")).split(".")[0] in ("anchorscope", "__main__")
    return ours and linecache.getline(frame.f_code.co_filename, line).lstrip().startswith("raise ")


@contextmanager
def meter(total: int, what: str) -> Iterator[Callable[[int], None]]:
    """A function to tell how many more are done: rate and time left on a terminal, in the log every few seconds.

    Where no job has set up a log, as in a notebook, the standard error is told whatever it is.
    """
    with (
        open(os.devnull, "w", encoding="utf-8") as nowhere,
        tqdm(
            desc=what,
            total=total,
            bar_format=LINE,
            unit="",
            smoothing=0,
            file=sys.stderr if sys.stderr.isatty() or not log.hasHandlers() else nowhere,
            disable=False,  # whatever the environment says: the log takes its lines from here
        ) as bar,
    ):
        last = time.monotonic()

        def done(count: int) -> None:
            nonlocal last
            bar.update(count)
            if time.monotonic() - last > SECONDS_BETWEEN_LINES:
                log.info(str(bar))
                last = time.monotonic()

        yield done
    log.info("%s: %d done in %.1f s", what, bar.n, bar.format_dict["elapsed"])


def progress(items: Iterable[Thing], total: int, what: str) -> Iterator[Thing]:
    """Yield `items`, and tell how far they are."""
    with meter(total, what) as done:
        for item in items:
            yield item
            done(1)
