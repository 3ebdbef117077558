"""A stretch of characters in a text."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """Characters `start` up to, not including, `end`."""

    start: int
    end: int
