"""Is an answer right, wrong or a refusal, and which of its characters are the exact answer?"""

import re
import unicodedata
from dataclasses import dataclass

from anchorscope.spans import Span

ARTICLES = frozenset(("a", "an", "the"))
YES_NO = (["yes"], ["no"])
REFUSAL = re.compile(
    r"^\W*(?:(?:i\s+(?:do\s+not|don['’]?t)\s+(?:know|have)|i(?:\s+a|['’])m\s+(?:not\s+(?:sure|able|aware)|unable|sorry)"
    r"|i\s+can(?:not|['’]?t)|there\s+is\s+no\s+(?:answer|information))"
    r"|(?:n/?a|none|idk|unknown|sorry|not\s+known|not\s+sure)\W*$|sorry,)",
    re.IGNORECASE,
)
LEAD_IN = re.compile(
    r"^\W*(?:(?:well|sure|so)\W+)?"
    r"(?:(?:the\s+(?:correct\s+|right\s+|short\s+)?answer(?:\s+to\s+[^,:]*?)?\s*(?:is|was|:)"
    r"|(?:answer|a)\s*:|(?:it|this|that|he|she|they)\s+(?:is|was|are|were)(?:\s+called)?\b"
    r"|(?:it|that)['’]s\b|i\s+(?:think|believe)(?:\s+(?:that\s+)?(?:it\s+(?:is|was)|it['’]s))?\b))\s*:?\s*",
    re.IGNORECASE,
)
# Where a short answer ends and an explanation begins. A full stop after an initial, an abbreviation or a leading number
# does not end it, nor does a comma before a year or before one last capitalised word ("Portland, Oregon").
ABBREVIATIONS = "".join(rf"(?<!\b{word})" for word in "St Dr Mt Mr Ms Mrs Jr Sr Ft vs".split())
TAIL = re.compile(
    rf"(?<!\b[A-Z])(?<!^\d)(?<!^\d\d){ABBREVIATIONS}\.(?:\s|$)"
    r"|,\s(?!\d{3,4}\b)(?![A-Z][\w.'’-]*\W*$)"
    r"|[;:!?](?:\s|$)|\s[(–—-]+\s*"
    r"|\s(?:because|which|who|that|where|since|although|but)\s",
)
EDGES = " \t\"'“”‘’«»()[]{}*_.,;:!?"


@dataclass(frozen=True)
class Label:
    """`right` and `exact` are None for a refusal."""

    right: bool | None
    exact: Span | None

    @property
    def refused(self) -> bool:
        return self.right is None


def label(answer: str, gold: list[str]) -> Label:
    """Judge `answer` against the accepted answers and find its exact answer characters."""
    words = normal_words(answer)
    matched = find_gold(answer, gold)
    if not words or REFUSAL.match(answer):
        # A gold answer may itself read like a refusal ("None"); a refusal that mentions one is still a refusal.
        spoken = matched is not None and matched.start == words[0][1].start
        return Label(True, matched) if spoken else Label(None, None)
    return Label(True, matched) if matched else Label(False, short_answer(answer))


def find_gold(answer: str, gold: list[str]) -> Span | None:
    """The first, then longest, whole-word occurrence of a gold alias; yes or no only as the first word."""
    words = normal_words(answer)
    best: tuple[int, int] | None = None
    for alias in gold:
        target = [word for word, _ in normal_words(alias)]
        if not target:
            continue
        starts = range(1) if target in YES_NO else range(len(words) - len(target) + 1)
        for start in starts:
            if [word for word, _ in words[start : start + len(target)]] == target:
                candidate = (start, -len(target))
                best = candidate if best is None else min(best, candidate)
                break
    if best is None:
        return None
    start, length = best[0], -best[1]
    return Span(words[start][1].start, words[start + length - 1][1].end)


def short_answer(answer: str) -> Span:
    """The short answer inside a text that has words: without lead-in, explanation, quotes and punctuation."""
    lead = LEAD_IN.match(answer)
    start = lead.end() if lead else 0
    tail = TAIL.search(answer, start + 1)
    span = _trimmed(answer, start, tail.start() if tail else len(answer))
    return span or _trimmed(answer, 0, len(answer))


def _trimmed(text: str, start: int, end: int) -> Span | None:
    while start < end and text[start] in EDGES:
        start += 1
    while end > start and text[end - 1] in EDGES:
        end -= 1
    return Span(start, end) if end > start else None


def normal_words(text: str) -> list[tuple[str, Span]]:
    """Normalised words with the characters they came from.

    Unicode NFKD without accents, lower case, punctuation to spaces, articles dropped.
    """
    words: list[tuple[str, Span]] = []
    current, start = "", 0
    for index, char in enumerate(text + " "):
        plain = "".join(c for c in unicodedata.normalize("NFKD", char) if not unicodedata.combining(c)).lower()
        if plain and all(c.isalnum() for c in plain):
            start = index if not current else start
            current += plain
        elif current and not unicodedata.combining(char):
            if current not in ARTICLES:
                words.append((current, Span(start, index)))
            current = ""
    return words
