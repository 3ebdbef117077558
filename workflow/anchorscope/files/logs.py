"""What a job says while it runs: one log file, and progress for eyes and for logs."""

import gc
import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TypeVar

log = logging.getLogger("anchorscope")
SECONDS_BETWEEN_LINES = 10
Item = TypeVar("Item")


def configure_logging(path: Path | str) -> None:
    """Log to `path` and to standard error; an uncaught error becomes the log's last line."""
    gc.freeze()  # what was imported stays: looking for garbage in it takes a second, and at the end another
    to_screen = logging.StreamHandler()
    # On a terminal the line of progress speaks, and other lines would tear it.
    to_screen.setLevel(logging.WARNING if sys.stderr.isatty() else logging.INFO)
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s",
        handlers=[logging.FileHandler(path, mode="w", encoding="utf-8"), to_screen],
        force=True,
    )
    # What a hub's client says of a request may hold a signed address.
    quiet = {"httpx": logging.ERROR, "httpx2": logging.ERROR, "huggingface_hub": logging.ERROR}
    quiet |= dict.fromkeys(("filelock", "matplotlib", "fontTools"), logging.WARNING)
    for chatty, level in quiet.items():
        logging.getLogger(chatty).setLevel(level)

    def log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        logging.getLogger().error("The job failed, traceback first, reason last.", exc_info=(kind, error, trace))

    sys.excepthook = log_uncaught


def progress(
    items: Iterable[Item], total: int, what: str, weight: Callable[[Item], int] = lambda item: 1
) -> Iterator[Item]:
    """Yield `items`; say rate and time left every few seconds, and all the time in one line of a terminal."""
    start = last = time.monotonic()
    done = 0
    for item in items:
        yield item
        done += weight(item)
        now = time.monotonic()
        rate = done / max(now - start, 1e-9)
        line = f"{what}: {done} of {total}, {rate:.1f} a second, {(total - done) / rate:.0f} s left"
        if sys.stderr.isatty():
            print(f"\r\033[K{line}", end="\n" if done == total else "", file=sys.stderr, flush=True)
        if now - last > SECONDS_BETWEEN_LINES:
            log.info(line)
            last = now
    log.info("%s: %d done in %.1f s", what, done, time.monotonic() - start)
