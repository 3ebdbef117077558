"""The normalised words by which answers are compared."""

import unicodedata

from anchorscope.text.spans import Span

ARTICLES = frozenset(("a", "an", "the"))


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
