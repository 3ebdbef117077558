"""The words of an answer and of an accepted answer in the form in which the two are compared.

Beyond normalised words: numbers and ordinals as digits, day and month in one order, initials together, one word for a
unit, and no "and". Scripts that put no spaces between words are taken a character at a time.
"""

from dataclasses import dataclass, replace
from decimal import Decimal

import regex

from anchorscope.text.normal_words import normal_words
from anchorscope.text.spans import Span

SMALL = {
    word: number
    for number, word in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
        "seventeen eighteen nineteen".split()
    )
}
TENS = {
    word: 10 * number for number, word in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split(), 2)
}
POWERS = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
ORDINALS = dict(
    zip(
        "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth "
        "fifteenth sixteenth seventeenth eighteenth nineteenth twentieth".split(),
        ["1st", "2nd", "3rd", *(f"{number}th" for number in range(4, 21))],
        strict=True,
    )
)
UNITS = {
    **dict.fromkeys(("kilometer", "kilometers", "kilometre", "kilometres"), "km"),
    **dict.fromkeys(("foot", "feet"), "ft"),
    **dict.fromkeys(("mile", "miles"), "mi"),
    **dict.fromkeys(("kilogram", "kilograms", "kilogramme", "kilogrammes"), "kg"),
}
MONTHS = "january february march april may june july august september october november december".split()
MOST_WORDS = 12  # of a number: "nine hundred and ninety-nine thousand ..."
NUMBER = regex.compile(r"\d+(?:\.\d+)?")
DAY = regex.compile(r"([12]?\d|3[01])(?:st|nd|rd|th)?")
# Chinese, Japanese, Thai, Lao, Khmer and Burmese.
UNSPACED = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}ー\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]\p{M}*")
Words = tuple[str, ...]


@dataclass(frozen=True)
class Word:
    """A word as it is compared, and the characters that it came from."""

    text: str
    span: Span


def compared_words(text: str) -> list[Word]:
    """The words by which a text is compared with another."""
    words = _together([Word(*word) for word in normal_words(text)], text)
    words = _dates(_numbers(words))
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
            word = texts[place]
            found.append(replace(words[place], text=ORDINALS.get(word, UNITS.get(word, word))))
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
        elif (word in TENS and (not place or last >= 100)) or (word in SMALL and (not place or last >= 20)):
            value = (TENS | SMALL)[word]
            if 20 <= last < 100 and not 0 < value < 10:
                break
            current, last = current + value, value or 1
        elif not place and NUMBER.fullmatch(word):
            current, last = Decimal(word), 1
        elif word == "and" and last >= 100 and words[place + 1 : place + 2] and words[place + 1] in TENS | SMALL:
            continue
        else:
            break
        taken = place + 1
    alone = taken == 1 and (words[0] not in TENS | SMALL | POWERS or words[:2] == ["one", "of"])  # "12", "one of them"
    return ("", 0) if not taken or alone else (f"{(total + current).normalize():f}", taken)


def _dates(words: list[Word]) -> list[Word]:
    """With the month before the day: "4 July" and "the 4th of July" as "july 4"."""
    found: list[Word] = []
    for word in words:
        if word.text in MONTHS:
            before = found[:-1] if found and found[-1].text == "of" else found
            day = DAY.fullmatch(before[-1].text) if before else None
            if day and (len(before) == 1 or before[-2].text not in MONTHS):
                found = [*before[:-1], word, replace(before[-1], text=day[1])]
                continue
        elif found and found[-1].text in MONTHS and (day := DAY.fullmatch(word.text)):
            word = replace(word, text=day[1])
        found.append(word)
    return found


def _characters(word: Word) -> list[Word]:
    """A word as it is, or the characters of one in a script without spaces."""
    if word.text.isascii() or not UNSPACED.search(word.text):
        return [word]
    parts = regex.findall(rf"{UNSPACED.pattern}|(?:(?!{UNSPACED.pattern}).)+", word.text)
    return [replace(word, text=part) for part in parts]


def texts(text: str) -> Words:
    """The compared words alone."""
    return tuple(word.text for word in compared_words(text))


def equal(said: Words, name: Words) -> bool:
    """Whether some words are a name, up to the plural of its last word."""
    return len(said) == len(name) > 0 and said[:-1] == name[:-1] and alike(said[-1], name[-1])


def contain(words: Words, name: Words) -> bool:
    """Whether words have a name among them."""
    return any(equal(words[start : start + len(name)], name) for start in range(len(words) - len(name) + 1))


def alike(one: str, other: str) -> bool:
    """Whether two words are the same, or one is the plural of the other: "films", "boxes", "cities"."""
    if one == other:
        return True
    short, long = sorted((one, other), key=len)
    endings = (f"{short}s", f"{short}es", f"{short[:-1]}ies" if short.endswith("y") else "")
    return len(short) > 2 and short.isalpha() and long in endings and not long.endswith(("ss", "us", "is"))
