"""The normalised words by which answers are compared."""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

import regex

from anchorscope.text.spans import Span

ARTICLES = frozenset(("a", "an", "the"))
# A letter rather than an article: "vitamin A", "A. Dumas", "A minor".
LETTER_A = regex.compile(
    r"(?!\s+[\"'“‘(\[«*_]*[\p{L}\p{N}])|\s+(?:is|was|has|and|or|in|of|to|minor|major|flat|sharp)\b"
)
WORD = regex.compile(
    r"""
    \p{L}[\p{L}\p{M}\p{N}]*
    | (?:(?<![\p{L}\p{M}\p{N}.,)\]%'’])(?<!\d\s)(?P<sign>[-±])[$€£¥₹]?(?=\.?\d))?
    (?P<number>
        \d+[+\s]\d\d?[/⁄]\d\d?(?![\d/⁄])                                    # 3 1/2, 3½
      | (?<![\d/⁄])\d\d?[/⁄]\d\d?(?![\d/⁄])                                 # 1/2; not a date
      | (?:\d{1,3}(?:[,'’\u00a0\u2009\u202f]\d{3})+|\d\d?(?:,\d\d)+,\d{3})(?!\d)(?:\.\d+)?  # 10,000 and 1,00,000
      | (?<![\d,])\d{1,3},(?:\d\d?|\d{5,})(?!\d|,\d)                         # 1,5 as many countries write it
      | (?<![\p{L}\p{M}\p{N}.])\.\d+
      | \d+(?:\.\d+)*
    )(?P<rest>[\p{L}\p{M}\p{N}]*)
    | \p{N}[\p{L}\p{M}\p{N}]*
    """,
    regex.VERBOSE,
)
LETTERS, DIGIT = re.compile("[a-z]+"), re.compile("[0-9]")  # faster, where they do
DECIMAL_COMMA = regex.compile(r"\d{1,3},(?:\d\d?|\d{5,})")
SEPARATORS = str.maketrans("", "", ",'’\u00a0\u2009\u202f")
FOLDED = {
    **dict(zip("łøđðħıŧ", "loddhit", strict=True)),
    **{"æ": "ae", "œ": "oe", "þ": "th", "٫": ".", "٬": ","},
    **dict.fromkeys("‐‑‒–−", "-"),
    **dict.fromkeys("ʹʺʻʼʽʾʿˈˌـ", ""),
}


def normal_words(text: str) -> list[tuple[str, Span]]:
    """Normalised words with the characters they came from.

    Unicode NFKD without accents, lower case, punctuation to spaces, articles dropped unless there is nothing else. A
    number keeps its sign and decimals and loses its separators. Vowel signs belong to their word.
    """
    folded, places = _folded(text)
    return [(word, _span(places, start, end)) for word, start, end in _words(folded)]


def bare_words(text: str) -> list[str]:
    """Normalised words alone."""
    return [word for word, _, _ in _words(_folded(text)[0])]


def _words(folded: str) -> list[tuple[str, int, int]]:
    """The words of a folded text and where they begin and end in it."""
    plain = folded.isascii() and not DIGIT.search(folded)
    words = [(_written(match), *match.span()) for match in (LETTERS if plain else WORD).finditer(folded)]
    said = [word for word in words if word[0] not in ARTICLES or not _is_article(folded, *word)]
    return said or words


def _is_article(folded: str, word: str, start: int, end: int) -> bool:
    inside = start > 1 and folded[start - 1] in "'’" and folded[start - 2].isalpha()  # "Xi'an"
    return not inside and not (word == "a" and LETTER_A.match(folded, end))


def _written(match: re.Match | regex.Match) -> str:
    """A word, or a number in the one way in which all are written."""
    if match[0][0].isalpha():
        return match[0]
    sign, number, rest = (match[part] or "" for part in ("sign", "number", "rest"))
    if "/" in number or "⁄" in number:
        number = "+".join(number.replace("⁄", "/").replace("+", " ").split())
    elif DECIMAL_COMMA.fullmatch(number):
        number = number.replace(",", ".")
    number = number.translate(SEPARATORS)
    return f"{sign}{'0' if number.startswith('.') else ''}{number}{rest}" or match[0]


def _folded(text: str) -> tuple[str, Sequence[int]]:
    """A text in which letters that are taken for the same are the same, and where each of its characters stood."""
    if text.isascii():
        return text.lower(), range(len(text) + 1)
    parts = [_fold(char) for char in text]
    places = [place for place, part in enumerate(parts) for _ in part]
    return "".join(parts), [*places, len(text)]


@lru_cache(maxsize=4096)
def _fold(char: str) -> str:
    """What a character is compared as: letters, digits and vowel signs, or one that stands between words."""
    if char.isspace():
        return char
    parts = [part for part in unicodedata.normalize("NFKD", char) if not _is_accent(part)]
    if unicodedata.decomposition(char).startswith("<fraction>"):
        return f"+{''.join(parts)}"
    plain = "".join(_letter(part) for part in parts)
    if unicodedata.decomposition(char).startswith("<super>") and plain.isdecimal():
        return f"^{plain}"
    return plain if len(plain) <= 1 or regex.fullmatch(r"[\p{L}\p{M}\p{N}]+", plain) else " "


def _letter(part: str) -> str:
    digit = unicodedata.decimal(part, None)
    small = part.casefold()
    return str(digit) if digit is not None else FOLDED.get(small, small)


def _is_accent(part: str) -> bool:
    """Whether a mark may be left out: accents, the vowels of Hebrew and Arabic; not vowel signs, tones or voicing."""
    kind = unicodedata.combining(part)
    return kind == 1 or 10 <= kind <= 36 or kind >= 200 or unicodedata.category(part) == "Cf"


def _span(places: Sequence[int], start: int, end: int) -> Span:
    """The characters of a stretch of the folded text, with the accents that follow it."""
    return Span(places[start], max(places[end], places[end - 1] + 1))
