"""The normalised words by which answers are compared."""

import re
import unicodedata
from functools import lru_cache

from anchorscope.text.spans import Span

ARTICLES = frozenset(("a", "an", "the"))
ASCII_WORD = re.compile("[A-Za-z0-9]+")


def normal_words(text: str) -> list[tuple[str, Span]]:
    """Normalised words with the characters they came from.

    Unicode NFKD without accents, lower case, punctuation to spaces, articles dropped.
    """
    if not text.isascii():
        return _by_character(text)
    found = ((match[0].lower(), match.span()) for match in ASCII_WORD.finditer(text))
    return [(word, Span(*span)) for word, span in found if word not in ARTICLES]


def bare_words(text: str) -> list[str]:
    """Normalised words alone."""
    if not text.isascii():
        return [word for word, _ in _by_character(text)]
    return [word for word in ASCII_WORD.findall(text.lower()) if word not in ARTICLES]


def _by_character(text: str) -> list[tuple[str, Span]]:
    """The same for any text, a character at a time."""
    words: list[tuple[str, Span]] = []
    current, start = "", 0
    for index, char in enumerate(text + " "):
        plain, is_accent = _plain(char)
        if plain:
            start = index if not current else start
            current += plain
        elif current and not is_accent:
            if current not in ARTICLES:
                words.append((current, Span(start, index)))
            current = ""
    return words


@lru_cache(maxsize=4096)
def _plain(char: str) -> tuple[str, bool]:
    """The letters and digits that a character stands for, in lower case, and whether it belongs to the one before."""
    parts = (part for part in unicodedata.normalize("NFKD", char) if not unicodedata.combining(part))
    plain = "".join(parts).lower()
    return plain if all(part.isalnum() for part in plain) else "", bool(unicodedata.combining(char))
