"""The ways in which an accepted answer can be said.

A *name* of it counts wherever it stands in an answer. A *shorter name* leaves something out, so it counts only where it
is all that the answer says.
"""

from functools import lru_cache

import regex

from anchorscope.text.compared_words import MONTHS, Words, alike, contain, texts
from anchorscope.text.content_words import FUNCTION_WORDS

PARENTHESIS = regex.compile(r"\s*[(\[]([^)\]]*)[)\]]")
# "in the bone marrow", "about 24 hours"; not "In Cold Blood".
LEADING = regex.compile(
    r"(?:in|on|at|by|from|to|of|for|with|during|near|since|until|around|about|approximately|roughly|circa|over)\s+"
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
    r"(?:the\s+)?(?:republic|kingdom|state|city|commonwealth|emirate|county)\s+of\s+", regex.IGNORECASE
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


@lru_cache(maxsize=2**14)
def names(alias: str) -> tuple[Words, ...]:
    """The alias in words; also without its preposition, and without a parenthesis that says the same, or that alone."""
    outside, inside = texts(PARENTHESIS.sub("", alias)), tuple(map(texts, PARENTHESIS.findall(alias)))
    again = [words for words in inside if _says_again(words, outside)]
    found = [texts(alias), *again, *([outside] if again else [])]
    lead = LEADING.match(alias)
    if lead and _is_phrase(alias, lead):
        found.append(texts(alias[lead.end() :]))
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
    found += [texts(outside[realm.end() :])] if (realm := REALM.match(outside)) else []
    lets_choose = "or" in asked
    return tuple(dict.fromkeys(short for short in found if short and (lets_choose or not contain(asked, short))))


def _says_again(inside: Words, outside: Words) -> bool:
    """Whether a parenthesis says the same: "Four (4)", "World Health Organization (WHO)"."""
    initials = "".join(word[0] for word in outside if word not in FUNCTION_WORDS)
    return inside in (outside, (initials,))


def _is_phrase(alias: str, lead: regex.Match) -> bool:
    """Whether a preposition belongs to no title: it is small, or what follows it is small or a number."""
    rest = alias[lead.end() :]
    return (alias[0].islower() or not rest[0].isupper()) and not FUNCTION_WORDS.issuperset(texts(rest))


def after_titles(words: Words) -> Words:
    """A name without "Sir" and the like before it."""
    place = next((place for place, word in enumerate(words) if word not in TITLES), len(words))
    return words[place:]


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


def is_short_of(said: Words, alias: str) -> bool:
    """Whether a name lacks only given names, initials or titles of the alias: "Anna Keller" of "Anna Louise Keller"."""
    full = texts(alias)
    if not 1 < len(said) <= len(full) > 2 or said == full or said[-1] != full[-1] or not NAME.fullmatch(alias):
        return False
    rest = iter(full)
    told = {word for word in full if word in TELLING | FUNCTION_WORDS or ROMAN.fullmatch(word)}
    return told.issubset(said) and all(any(_stands_for(word, name) for name in rest) for word in said)


def _stands_for(word: str, name: str) -> bool:
    """Whether a word is a name or its initial."""
    return word == name or (len(word) == 1 and name.startswith(word))
