"""A text as words: normalised, and in the form in which an answer and an accepted answer are compared.

Compared words have, beyond normalised ones, numbers and ordinals as digits, day and month in one order, initials
together, one word for a unit, and no "and". Scripts that put no spaces between words are taken a character at a time.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple

import regex

ARTICLES = frozenset(("a", "an", "the"))
# A letter rather than an article: "vitamin A", "A. Dumas", "A minor".
LETTER_A = regex.compile(
    r"(?!\s+[\"'“‘(\[«*_]*[\p{L}\p{N}])|\s+(?:is|was|has|and|or|in|of|to|minor|major|flat|sharp)\b"
)
NORMAL_WORD = regex.compile(
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
LATIN_LETTERS, DIGIT = re.compile("[a-z]+"), re.compile("[0-9]")  # faster, where they do
DECIMAL_COMMA = regex.compile(r"\d{1,3},(?:\d\d?|\d{5,})")
SEPARATORS = str.maketrans("", "", ",'’\u00a0\u2009\u202f")
FOLDED = {
    **dict(zip("łøđðħıŧ", "loddhit", strict=True)),
    **{"æ": "ae", "œ": "oe", "þ": "th", "٫": ".", "٬": ","},
    **dict.fromkeys("‐‑‒–−", "-"),
    **dict.fromkeys("ʹʺʻʼʽʾʿˈˌـ", ""),
}
VALUES = dict(
    zip(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
        "seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety".split(),
        [*range(20), *range(20, 100, 10)],
        strict=True,
    )
)
POWERS = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
ORDINALS_AND_UNITS = {
    **dict(
        zip(
            "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth "
            "fifteenth sixteenth seventeenth eighteenth nineteenth twentieth".split(),
            ["1st", "2nd", "3rd", *(f"{number}th" for number in range(4, 21))],
            strict=True,
        )
    ),
    **dict.fromkeys(("kilometer", "kilometers", "kilometre", "kilometres"), "km"),
    **dict.fromkeys(("foot", "feet"), "ft"),
    **dict.fromkeys(("mile", "miles"), "mi"),
    **dict.fromkeys(("kilogram", "kilograms", "kilogramme", "kilogrammes"), "kg"),
}
MONTHS = "january february march april may june july august september october november december".split()
MONTH = f"(?:{'|'.join(MONTHS).title()})"  # as other patterns take it
MOST_WORDS = 12  # of a number: "nine hundred and ninety-nine thousand ..."
NUMBER = regex.compile(r"\d+(?:\.\d+)?")
DAY = regex.compile(r"([12]?\d|3[01])(?:st|nd|rd|th)?")
# Chinese, Japanese, Thai, Lao, Khmer and Burmese.
UNSPACED = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}ー\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]\p{M}*")
Words = tuple[str, ...]


@dataclass(frozen=True)
class Span:
    """Characters `start` up to, not including, `end`."""

    start: int
    end: int


class Word(NamedTuple):
    """A word, and the characters that it came from."""

    text: str
    span: Span


def tidy(text: str) -> str:
    """Collapse white space; undo the doubled quotes that a careless CSV export leaves behind."""
    text = " ".join(text.split())
    if len(text) > 1 and text[0] == text[-1] == '"' and '""' in text:
        text = text[1:-1].replace('""', '"')
    return text.replace('""', '"').strip()


def normal_words(text: str) -> list[Word]:
    """Normalised words with the characters they came from.

    Unicode NFKD without accents, lower case, punctuation to spaces, articles dropped unless there is nothing else. A
    number keeps its sign and decimals and loses its separators. Vowel signs belong to their word.
    """
    folded, places = _folded(text)
    return [
        Word(word, Span(places[start], max(places[end], places[end - 1] + 1)))  # with the accents that follow it
        for word, start, end in _words(folded)
    ]


def bare_words(text: str) -> list[str]:
    """Normalised words alone."""
    return [word for word, _, _ in _words(_folded(text)[0])]


def _words(folded: str) -> list[tuple[str, int, int]]:
    """The words of a folded text and where they begin and end in it."""
    plain = folded.isascii() and not DIGIT.search(folded)
    words = [(_written(match), *match.span()) for match in (LATIN_LETTERS if plain else NORMAL_WORD).finditer(folded)]
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


def compared_words(text: str) -> list[Word]:
    """The words by which a text is compared with another."""
    words = _dates(_numbers(_together(normal_words(text), text)))
    return [one for word in words if word.text != "and" for one in _characters(word)] or words


def _together(words: list[Word], text: str) -> list[Word]:
    """Joined where an apostrophe stands between, as in "Qur'an", and initials: "J. R. R.", "U.S."."""
    joined: list[Word] = []
    initial = False  # whether the last of them is made of initials
    for word in words:
        single = len(word.text) == 1 and word.text.isalpha()
        between = text[joined[-1].span.end : word.span.start] if joined else ""
        if joined and (between in ("'", "’") or (initial and single and between in (".", ". ", " "))):
            last = joined.pop()
            joined.append(Word(last.text + word.text, Span(last.span.start, word.span.end)))
        else:
            joined.append(word)
            initial = single
    return joined


def _numbers(words: list[Word]) -> list[Word]:
    """With numbers that are written in words as digits: "twenty-one", "a hundred and five", "1.5 million", "third"."""
    texts = [word.text for word in words]
    found: list[Word] = []
    place = 0
    while place < len(words):
        minus = texts[place] in ("minus", "negative")
        value, length = _number_at(texts[place + minus : place + minus + MOST_WORDS])
        if not value and minus and NUMBER.fullmatch("".join(texts[place + 1 : place + 2])):
            value, length = texts[place + 1], 1
        if value:
            last = place + minus + length - 1
            span = Span(words[place].span.start, words[last].span.end)
            found.append(Word(f"{'-' if minus else ''}{value}", span))
            place = last
        else:
            found.append(words[place]._replace(text=ORDINALS_AND_UNITS.get(texts[place], texts[place])))
        place += 1
    return found


def _number_at(words: list[str]) -> tuple[str, int]:
    """The number in words that some words begin with, in digits, and how many of them it takes; empty for none."""
    total, current, last, taken = Decimal(0), Decimal(0), 0, 0  # `last` is the value of the word before
    for place, word in enumerate(words):
        if word in POWERS and (last or not place):
            current = (current or Decimal(1)) * POWERS[word]
            if word != "hundred":
                total, current = total + current, Decimal(0)
            last = POWERS[word]
        elif word in VALUES and (not place or last >= (100 if VALUES[word] >= 20 else 20)):
            value = VALUES[word]
            if 20 <= last < 100 and not 0 < value < 10:
                break
            current, last = current + value, value or 1
        elif not place and NUMBER.fullmatch(word):
            current, last = Decimal(word), 1
        elif word == "and" and last >= 100 and words[place + 1 : place + 2] and words[place + 1] in VALUES:
            continue
        else:
            break
        taken = place + 1
    alone = taken == 1 and (words[0] not in VALUES | POWERS or words[:2] == ["one", "of"])  # "12", "one of them"
    return ("", 0) if not taken or alone else (f"{(total + current).normalize():f}", taken)


def _dates(words: list[Word]) -> list[Word]:
    """With the month before the day: "4 July" and "the 4th of July" as "july 4"."""
    found: list[Word] = []
    for word in words:
        if word.text in MONTHS:
            before = found[:-1] if found and found[-1].text == "of" else found
            day = DAY.fullmatch(before[-1].text) if before else None
            if day and (len(before) == 1 or before[-2].text not in MONTHS):
                found = [*before[:-1], word, before[-1]._replace(text=day[1])]
                continue
        elif found and found[-1].text in MONTHS and (day := DAY.fullmatch(word.text)):
            word = word._replace(text=day[1])
        found.append(word)
    return found


def _characters(word: Word) -> list[Word]:
    """A word as it is, or the characters of one in a script without spaces."""
    if word.text.isascii() or not UNSPACED.search(word.text):
        return [word]
    parts = regex.findall(rf"{UNSPACED.pattern}|(?:(?!{UNSPACED.pattern}).)+", word.text)
    return [word._replace(text=part) for part in parts]


@lru_cache(maxsize=1024)  # an answer is compared with each name in several ways
def texts(text: str) -> Words:
    """The compared words alone."""
    return tuple(word.text for word in compared_words(text))


def equal(said: Words, name: Words) -> bool:
    """Whether some words are a name, up to the plural of its last word."""
    return len(said) == len(name) > 0 and said[:-1] == name[:-1] and alike(said[-1], name[-1])


def contain(words: Words, name: Words) -> bool:
    """Whether words have a name among them."""
    if len(name) > 1 and name[0] not in words:
        return False
    return any(equal(words[start : start + len(name)], name) for start in range(len(words) - len(name) + 1))


def alike(one: str, other: str) -> bool:
    """Whether two words are the same, or one is the plural of the other: "films", "boxes", "cities"."""
    if one == other or one[:1] != other[:1]:
        return one == other
    short, long = sorted((one, other), key=len)
    endings = (f"{short}s", f"{short}es", f"{short[:-1]}ies" if short.endswith("y") else "")
    return len(short) > 2 and short.isalpha() and long in endings and not long.endswith(("ss", "us", "is"))
