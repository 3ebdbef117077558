"""What a job says while it runs: one log file, and progress for eyes and for logs."""

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from tqdm import tqdm

log = logging.getLogger("anchorscope")
SECONDS_BETWEEN_LINES = 10
Item = TypeVar("Item")


def configure_logging(path: Path | str) -> None:
    """Log to `path` and to standard error; an uncaught error becomes the log's last line."""
    to_screen = logging.StreamHandler()
    # On a terminal the progress bar speaks, and lines would tear it.
    to_screen.setLevel(logging.WARNING if sys.stderr.isatty() else logging.INFO)
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s",
        handlers=[logging.FileHandler(path, mode="w", encoding="utf-8"), to_screen],
        force=True,
    )
    for chatty in ("httpx", "filelock", "matplotlib", "fontTools"):
        logging.getLogger(chatty).setLevel(logging.WARNING)

    def log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        logging.getLogger().error("The job failed, traceback first, reason last.", exc_info=(kind, error, trace))

    sys.excepthook = log_uncaught


def progress(
    items: Iterable[Item], total: int, what: str, weight: Callable[[Item], int] = lambda item: 1
) -> Iterator[Item]:
    """Yield `items`; show a bar on a terminal, and log rate and time left every few seconds."""
    start = last = time.monotonic()
    done = 0
    with tqdm(total=total, desc=what, disable=not sys.stderr.isatty(), leave=False) as bar:
        for item in items:
            yield item
            done += weight(item)
            bar.update(weight(item))
            now = time.monotonic()
            if now - last > SECONDS_BETWEEN_LINES:
                rate = done / (now - start)
                log.info("%s: %d of %d, %.1f a second, %.0f s left", what, done, total, rate, (total - done) / rate)
                last = now
    log.info("%s: %d done in %.1f s", what, done, time.monotonic() - start)
