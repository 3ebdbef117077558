"""The ways in which an accepted answer can be said.

A *name* of it counts wherever it stands in an answer. A *shorter name* leaves something out, so it counts only where it
is all that the answer says.
"""

from functools import lru_cache

import regex

from anchorscope.text.compared_words import MONTHS, Word, compared_words
from anchorscope.text.content_words import FUNCTION_WORDS

Words = tuple[str, ...]

PARENTHESIS = regex.compile(r"\s*[(\[]([^)\]]*)[)\]]")
# "in the bone marrow", "about 24 hours"; not "In Cold Blood".
LEADING = regex.compile(
    r"(?:in|on|at|by|from|to|of|for|with|during|near|since|until|around|about|approximately|roughly|circa|over)\s+"
    r"(?:(?:the|an?)\s+)?(?=\S)",
    regex.IGNORECASE,
)
TITLES = frozenset(
    "mr mrs ms miss dr prof professor sir dame lord lady king queen prince princess emperor empress president pope saint "
    "st general major captain colonel commander lieutenant admiral senator governor judge justice chief reverend rev".split()
)
REALM = regex.compile(r"(?:the\s+)?(?:republic|kingdom|state|city|commonwealth|emirate|county)\s+of\s+", regex.IGNORECASE)
# What a question asks for, and what an accepted answer may add to it: of a genre "comedy film".
ADDED = {
    "genre": frozenset("film films movie movies music literature fiction novel novels game games".split()),
    "religion": frozenset(("church", "religion", "faith")),
}
# Words that make another thing of a name: "Arizona State University", "North Korea", "Vice President".
TELLING = frozenset("new north south east west northern southern eastern western state great vice deputy assistant".split())
ROMAN = regex.compile(r"[ivx]+")
UNITED_STATES = (("us",), ("usa",), ("united", "states"))


@lru_cache(maxsize=2**14)
def names(alias: str) -> tuple[Words, ...]:
    """The alias in words; also without its parenthesis, which may hold a number or initials, or its preposition."""
    outside = PARENTHESIS.sub("", alias)
    inside = [words for words in map(texts, PARENTHESIS.findall(alias)) if _same(words, texts(outside))]
    without = [alias[lead.end() :]] if (lead := LEADING.match(alias)) and _is_phrase(alias, lead) else []
    said = [texts(text) for text in (alias, outside, *without)]
    return tuple(dict.fromkeys(words for words in (*said, *inside) if words))


@lru_cache(maxsize=2**14)
def shorter_names(alias: str, question: str) -> tuple[Words, ...]:
    """The alias without what may be left out: a title, a region, the country's own name, what the question says."""
    outside = PARENTHESIS.sub("", alias)
    words = texts(outside)
    found = [_after_titles(words), _without_question(words, question), *_before_region(outside)]
    found += [words[len(country) :] for country in UNITED_STATES if words[: len(country)] == country]
    found += [texts(outside[realm.end() :])] if (realm := REALM.match(outside)) else []
    return tuple(dict.fromkeys(short for short in found if short and short != words))


def texts(text: str) -> Words:
    return tuple(word.text for word in compared_words(text))


def _same(inside: Words, outside: Words) -> bool:
    """Whether a parenthesis says the same again: "Four (4)", "World Health Organization (WHO)"."""
    content = [word for word in outside if word not in FUNCTION_WORDS]
    return inside == outside or (len(inside) == 1 and len(content) > 1 and inside[0] == "".join(word[0] for word in content))


def _is_phrase(alias: str, lead: regex.Match) -> bool:
    """Whether a preposition belongs to no title: it is small, or what follows it is small or a number."""
    following = alias[lead.end()]
    return (alias[0].islower() or not following.isupper()) and any(
        word not in FUNCTION_WORDS for word in texts(alias[lead.end() :])
    )


def _after_titles(words: Words) -> Words:
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


def _without_question(words: Words, question: str) -> Words:
    """Without what the question says at either end: to "Which river ...?", "Missouri" for "the Missouri River"."""
    asked = texts(question)
    if "or" in asked:  # the question names the answers that one may give
        return ()
    added = frozenset().union(*(heads for asks, heads in ADDED.items() if asks in asked))
    known = {singular(word) for word in asked} | added | FUNCTION_WORDS
    inside = [place for place, word in enumerate(words) if singular(word) not in known and word not in known]
    return words[inside[0] : inside[-1] + 1] if inside else ()


def singular(word: str) -> str:
    """A word without the ending of its plural: "cities", "boxes", "films"."""
    if len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is")) or not word.isalpha():
        return word
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    return word[:-2] if regex.search(r"(?:[sxz]|[cs]h|o)es$", word) else word[:-1]


def is_short_of(said: Words, full: list[Word], alias: str) -> bool:
    """Whether a name lacks only titles, given names or initials of a full one: "Thomas Mann" of "Paul Thomas Mann"."""
    if len(said) < 2 or len(full) < 3 or not all(alias[word.span.start].isupper() for word in full):
        return False
    rest = iter(word.text for word in full)
    if said[-1] != full[-1].text or not all(word in rest for word in said):
        return False
    missing = {word.text for word in full} - set(said)
    return not any(word in TELLING or ROMAN.fullmatch(word) or not word.isalpha() for word in missing)
