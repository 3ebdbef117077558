"""The normalised words by which answers are compared."""

import re
import unicodedata

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


def _by_character(text: str) -> list[tuple[str, Span]]:
    """The same for any text, a character at a time."""
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
