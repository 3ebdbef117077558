"""Is an answer right, wrong or a refusal, and which of its characters are the exact answer?

An accepted answer can be said in several ways. A *name* of it counts wherever it stands in an answer. A *shorter name*
leaves something out, so it counts only where it is all that the answer says.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import dropwhile, takewhile

import regex

from anchorscope.text.content_words import FUNCTION_WORDS
from anchorscope.text.normal_words import (
    ARTICLES,
    MONTHS,
    Span,
    Word,
    Words,
    alike,
    bare_words,
    compared_words,
    contain,
    equal,
    normal_words,
    texts,
)
from anchorscope.text.refusals import is_refusal
from anchorscope.text.short_answer import short_answer

YES_NO = (("yes",), ("no",))
ASKS_WHO = frozenset(("who", "whom", "whose"))
PARENTHESIS = regex.compile(r"\s*[(\[]([^)\]]*)[)\]]")
# "in the bone marrow", "about 24 hours"; not "In Cold Blood".
LEADING = regex.compile(
    r"\A(?:in|on|at|by|from|to|of|for|with|during|near|since|until|around|about|approximately|roughly|circa|over)\s+"
    r"(?:(?:the|an?)\s+)?(?=\S)",
    regex.IGNORECASE,
)
TITLES = frozenset(
    """
    mr mrs ms miss dr prof professor sir dame lord lady king queen prince princess emperor empress president pope saint
    st general major captain colonel commander lieutenant admiral senator governor judge justice chief reverend rev
    """.split()
)
REALM = regex.compile(
    r"\A(?:the\s+)?(?:republic|kingdom|state|city|commonwealth|emirate|county)\s+of\s+", regex.IGNORECASE
)
# What a question asks for, and what an accepted answer may add to it: of a genre "comedy film".
ADDED = {
    "genre": frozenset("film films movie movies music literature fiction novel novels game games".split()),
    "religion": frozenset(("church", "religion", "faith")),
}
# Words that make another thing of a name: "Ohio State University", "North Korea", "Vice President".
TELLING = frozenset(
    "new north south east west northern southern eastern western state great vice deputy assistant".split()
)
NAME = regex.compile(r"\p{Lu}[\p{L}\p{M}.'’-]*(?:\s+\p{Lu}[\p{L}\p{M}.'’-]*)+")
ROMAN = regex.compile(r"[ivx]+")
UNITED_STATES = (("united", "states", "of", "america"), ("united", "states"), ("usa",), ("us",))
# "SALT, or GRIT"; not "Truth or Dare".
ALTERNATIVES = regex.compile(r",\s+or\s+|\s+OR\s+")


@dataclass(frozen=True)
class Label:
    """Whether an answer is right, and its exact answer; both None for a refusal."""

    right: bool | None
    exact: Span | None

    @property
    def refused(self) -> bool:
        return self.right is None


def label(answer: str, gold: list[str], question: str = "") -> Label:
    """Judge `answer` against the accepted answers and find its exact answer characters.

    The exact answer is the short answer, found in the same way whether it is right or wrong. If it hung on the gold
    answers, the place of the probed token would tell the label. The `question` helps to read an answer that repeats
    it: "Titanic was directed by James Cameron".
    """
    matched = find_gold(answer, gold, question)
    # A gold answer may itself read like a refusal ("None"); a refusal that mentions one is still a refusal.
    spoken = matched is not None and matched.start == normal_words(answer)[0][1].start
    if not bare_words(answer) or (is_refusal(answer) and not spoken):
        return Label(None, None)
    return Label(matched is not None, short_answer(answer, question))


def find_gold(answer: str, gold: list[str], question: str = "") -> Span | None:
    """The first, then longest, stretch of the answer that is a gold alias; yes or no only as the first word."""
    if not gold or not bare_words(answer):
        return None
    short = short_answer(answer, question)
    said = _Said(
        answer,
        question,
        words=compared_words(answer),
        short=short,
        short_words=texts(answer[short.start : short.end]),
        asked=texts(question),
    )
    if "or" in texts(answer) and contain(said.asked, texts(answer)):  # "Mars or Venus", and no choice
        return None
    found = [span for alias in gold for span in said.names_of(alias, gold)]
    return min(found, key=lambda span: (span.start, -span.end), default=None)


@dataclass(frozen=True)
class _Said:
    """An answer as it is compared with accepted ones."""

    answer: str
    question: str
    words: list[Word]
    short: Span
    short_words: Words
    asked: Words

    def names_of(self, alias: str, gold: list[str]) -> Iterator[Span]:
        """Where the answer has the alias."""
        if texts(alias) in YES_NO:
            yield from [word.span for word in self.words[:1] if (word.text,) == texts(alias)]
            return
        for name in names(alias):
            if contain(self.asked, name):
                yield from [self.short] * self._is_more_than_echo(name, gold)
            elif self._is_all_that_is_said(name):
                yield self.short
            elif not ARTICLES.issuperset(name):
                yield from self._inside(name, gold)
        shorter = shorter_names(alias, self.question)
        if any(map(self._is_all_that_is_said, shorter)) or _is_short_of(self.short_words, alias):
            yield self.short

    def _is_more_than_echo(self, name: Words, gold: list[str]) -> bool:
        """Whether a name that the question says is given as the answer.

        It is chosen where the question lets choose. Elsewhere it is all that is said, and the dataset's first answer
        has it: to "What is Erithacus rubecula called?" that is none, even as an alias.
        """
        if "or" in self.asked:
            return contain(self.short_words, name)
        return self._is_all_that_is_said(name) and contain(texts(gold[0]), name)

    def _is_all_that_is_said(self, name: Words) -> bool:
        said = (self.short_words, after_titles(self.short_words), tuple(word.text for word in self.words))
        return any(equal(words, name) for words in said)

    def _inside(self, name: Words, gold: list[str]) -> Iterator[Span]:
        """Where the answer has the name as whole words, but not as a part of another name or number."""
        for start in range(len(self.words) - len(name) + 1):
            stretch = self.words[start : start + len(name)]
            if equal(tuple(word.text for word in stretch), name) and not self._is_part(start, name, gold):
                yield Span(min(word.span.start for word in stretch), max(word.span.end for word in stretch))

    def _is_part(self, start: int, name: Words, gold: list[str]) -> bool:
        """Whether a single word is a part of another name, such as "Muhammad Ali", or the name is denied."""
        if start and self.words[start - 1].text == "not":  # "It is not Canberra"
            return True
        if len(name) > 1:
            return False
        # Capitalised words beside it, as the names of a person have them, the nearest first.
        before = [self.words[place].text for place in takewhile(self._belong, range(start - 1, -1, -1))]
        after = [self.words[place + 1].text for place in takewhile(self._belong, range(start, len(self.words) - 1))]
        if not ASKS_WHO.intersection(self.asked):
            return bool(TELLING.intersection(before)) or bool(after and ROMAN.fullmatch(after[0]))
        known = {word for alias in gold for word in texts(alias)} | TITLES
        strange = [word for word in (*before, *after) if word not in known]
        longer = any(name[0] in words and len(words) > 1 for words in map(texts, gold))
        return bool(strange) and (longer or bool(after) or bool(TELLING.intersection(strange)))

    def _belong(self, place: int) -> bool:
        """Whether a word and the next are capitalised and nothing stands between them."""
        one, other = self.words[place], self.words[place + 1]
        between = self.answer[one.span.end : other.span.start]
        return (between in (" ", "-") or (between == ". " and len(one.text) < 3)) and all(
            self.answer[word.span.start].isupper() and word.text not in FUNCTION_WORDS for word in (one, other)
        )


@lru_cache(maxsize=2**14)
def names(alias: str) -> tuple[Words, ...]:
    """The alias in words; also without its preposition, and without a parenthesis that says the same, or that alone."""
    outside = texts(PARENTHESIS.sub("", alias))
    initials = "".join(word[0] for word in outside if word not in FUNCTION_WORDS)
    # "Four (4)", "World Health Organization (WHO)"
    again = [words for words in map(texts, PARENTHESIS.findall(alias)) if words in (outside, (initials,))]
    found = [texts(alias), *again, *([outside] if again else [])]
    rest = LEADING.sub("", alias)
    # In a title, the preposition is large, and so is what follows it.
    if rest != alias and (alias[0].islower() or not rest[0].isupper()) and not FUNCTION_WORDS.issuperset(texts(rest)):
        found.append(texts(rest))
    return tuple(dict.fromkeys(words for words in found if words))


@lru_cache(maxsize=2**14)
def shorter_names(alias: str, question: str) -> tuple[Words, ...]:
    """The alias without a parenthesis, a title, a region, "U.S.", or what the question says; one of its alternatives.

    Of what is left, nothing counts that the question says itself, unless it lets choose.
    """
    asked, outside = texts(question), PARENTHESIS.sub("", alias)
    words = texts(outside)
    found = [words, after_titles(words), _without_question(words, asked), *_before_region(outside)]
    found += map(texts, ALTERNATIVES.split(outside))
    found += UNITED_STATES if words in UNITED_STATES else []
    found += [words[len(country) :] for country in UNITED_STATES if words[: len(country)] == country]
    found.append(texts(REALM.sub("", outside)))
    return tuple(dict.fromkeys(short for short in found if short and ("or" in asked or not contain(asked, short))))


def after_titles(words: Words) -> Words:
    """A name without "Sir" and the like before it."""
    return tuple(dropwhile(TITLES.__contains__, words))


def _before_region(alias: str) -> list[Words]:
    """The place in "Edinburgh, Scotland"; not "April 14, 1912" or a list."""
    place, *regions = alias.split(", ")
    if not 1 <= len(regions) <= 2 or not all(regex.match(r"\p{Lu}[^\d]*$", part) for part in (place, *regions)):
        return []
    listed = any(word in ("and", "or", "&") for region in regions for word in region.split())
    words = texts(place)
    return [] if listed or words[:1] in [(month,) for month in MONTHS] else [words]


def _without_question(words: Words, asked: Words) -> Words:
    """Without what the question says at either end: to "Which river ...?", "Rhine" for "the Rhine River"."""
    if "or" in asked:  # the question names the answers that one may give
        return ()
    added = frozenset().union(*(heads for asks, heads in ADDED.items() if asks in asked))
    said = [word in added or any(alike(word, other) for other in asked) for word in words]
    news = [place for place, word in enumerate(words) if not said[place] and word not in FUNCTION_WORDS]
    if not news or not any(said[: news[0]] + said[news[-1] + 1 :]):
        return ()
    return words[news[0] : news[-1] + 1]


def _is_short_of(said: Words, alias: str) -> bool:
    """Whether a name lacks only given names, initials or titles of the alias: "Anna Keller" of "Anna Louise Keller".

    Or whether it only adds initials: "Mark S. Hope" for "Mark Hope".
    """
    full = texts(alias)
    plain = tuple(word for word in said if len(word) > 1)
    if 1 < len(plain) < len(said) and equal(plain, full):
        return True
    if not 1 < len(said) <= len(full) > 2 or said == full or said[-1] != full[-1] or not NAME.fullmatch(alias):
        return False
    rest = iter(full)  # in their order, each said in full or as an initial
    told = {word for word in full if word in TELLING | FUNCTION_WORDS or ROMAN.fullmatch(word)}
    return told.issubset(said) and all(any(word in (name, name[0]) for name in rest) for word in said)
