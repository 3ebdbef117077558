"""The short answer inside a longer text: what is said first, without lead-in, explanation, quotes and punctuation.

Patterns of English in the order in which they are tried, each with examples beside it. Tested on the hand-written
answers in tests/cases.
"""

import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import cast

import regex

from anchorscope.text.content_words import AUXILIARIES, FUNCTION_WORDS
from anchorscope.text.normal_words import MONTH, Span, bare_words, normal_words

FLAGS = regex.IGNORECASE | regex.VERBOSE
# In lower case: "There Will Be Blood" is a title.
BE = (
    r"(?-i:is|was|are|were|be|been|(?:will|would|might|could|may|must|should)\s+(?:have\s+been|be)"
    r"|(?:has|had|have)\s+been)"
)
PREPOSITION = r"(?:in|on|at|by|for|from|as|to|near|during|around|between|into|with|until|since)"
WORK = r"(?:film|movie|book|novel|song|show|series|play|story|game)"

# "No, they are not"; not "No Country for Old Men", "No. 5" or "No one".
YES_NO = regex.compile(r"\W*((?i:yes|no))\b(?=\W*$|[,;:!]|\s*[–—-]|\.(?!\s*\d)|\s+(?!one\b)\p{Ll})")

# Words before the answer; removed several times over.
LEAD_IN = regex.compile(
    rf"""\W*(?:
      (?:actually|certainly|absolutely|definitely|clearly|obviously|probably|perhaps|maybe|possibly|(?:most\ )?likely)
        \b\W+
    | (?:well|sure|so|ok|okay|hmm+|ah|oh|honestly|either|of\ course|(?:good|great)\ question|let\ me\ think)
        \b(?:[,!.:;…-]+\W*|\W+(?=(?-i:\p{{Ll}}|I\b)|(?-i:\p{{Lu}})\p{{L}}*\s+or\b))
    | (?:i['’]m|i\ am|we['’]re)\s+(?:pretty|fairly|quite|almost)?\s*(?:sure|certain)(?:\s+that)?\b\W*
    | (?:i['’]m|i\ am)\s+not\s+(?:\w+\s+)?(?:sure|certain)\b[^.!?]*?\bbut\b\W*
    | (?:i\s+(?:don['’]t|do\s+not)|no\s+one|nobody)\s+(?:really\s+)?(?:knows?|have)\b[^.!?]*?\bbut\b\W*
    | i\s+(?:think|believe|guess|suppose|recall|would\s+(?:say|guess|go\s+with))\b(?:\s+that\b)?\W*
    | (?:i['’]d)\s+(?:say|guess|go\s+with)\b\W*
    | (?:my\s+(?:best\s+)?guess|my\s+answer)\s+(?:is|would\s+be)\b\W*
    | (?:based\s+on|according\s+to|as\s+(?:far\s+as|of)|to\s+the\s+best|to\s+my|from\s+what|if\s+i)\b[^,.!?]*,\W*
    | in\s+the\s+{WORK}\b(?:\s+(?=(?:it|he|she)\b)|[^,.!?]*,\W*)
    | (?:it|that)(?:['’]s|\s+is|\s+was)\s+not\b[^.!?]*,\s+(?=(?:it|that)\b)
    | that(?:['’]s|\s+is|\s+was)\s+(?:easy|simple|an?\s+\w+\s+(?:one|question))\b\W*
    | (?:the\s+)?(?:(?:correct|right|short|final|best|most\s+likely)\s+)?answer(?:\s+to\s+[^,:]*?)?\s*(?:\b{BE}\b|:)\W*
    | (?:(?:q|question)\s*:\W*)?(?:who|what|which|where|when|how)\b[^.!?]*\?\W*
    | (?:a|answer|response)\s*:\W*
    )""",
    FLAGS,
)
# "It was written by", "The capital of Australia is", "He was born in", "There are": the answer follows.
# Also "Lincoln was the 14th", "The Eiffel Tower is 324 metres": a name, and then a number or another name.
CLAUSE = regex.compile(
    rf"""\W*(?:
      (?:it|this|that|he|she|they|these|those|there|we|you|one)(?:\s+\w+ly|\s+also)?(?:\s+{BE}|['’](?:s|re))\b
    | (?:the|an?|his|her|its|their|our|my|your|this|that|both|all)\s+(?-i:\p{{Ll}})[^,;.!?]*?
        \s+(?<!\b(?:you|we|they)\s+)(?:{BE}\b|(?:has|have|had)\s+an?\s+(?:\w+\s+){{1,3}}of\b)
    | (?:the|an?)\s+(?-i:\p{{Lu}}\p{{L}}+\s+\p{{Ll}}+\s+(?:who|that|which|of))\s[^,;.!?]*?\s{BE}\b
    | (?-i:\p{{Lu}})[^,;.!?]*?['’]s\s+(?-i:\p{{Ll}})[^,;.!?]*?\s+{BE}\b
    )\s*
    |\W*(?-i:\p{{Lu}})[^,;.!?]*?\s+{BE}\s+
    (?=(?:(?:in|on|at|about|around|the)\s+)*[$€£]?\d|(?:the\s+)?(?:first|second|third|fourth|fifth|sixth|seventh)\b
      |(?:born|located|situated|built|founded|named|called)\s|(?:\w+ly\s+)?(?:made|composed)\s)""",
    FLAGS,
)
# "Titanic was", "Mozart died", "Moby-Dick by": a subject, up to its verb.
SUBJECT_VERB = regex.compile(
    rf"\W*([^,;.!?]+?)\s+(?:{BE}|(?-i:\p{{Ll}}{{2,}}(?:ed|s))|wrote|won|sang|sank|fell|rose|cost|began|became|by)\s+",
    FLAGS,
)
# "two elements: hydrogen and oxygen".
HEADING = regex.compile(r"\W*([^,;.!?:]+):\s+")
SMALL_WORDS = frozenset("than of in on at to for and or is was are were both".split())
# After the verb: "called", "written by", "born on", "most likely in".
AFTER_VERB = regex.compile(
    rf"""(?:(?:most\s+)?(?:probably|likely|actually|originally|officially|commonly|usually|also|either|first)\s+)*
    (?:(?:called|named|titled|entitled|nicknamed|known\s+as|(?:\w+ly\s+)?(?:made|composed)\s+(?:up\s+)?of)\s+
      |(?!(?:the|an?)\b)(?:(?-i:\p{{Ll}}+)\s+){{0,2}}{PREPOSITION}\s+(?:(?-i:\p{{Ll}}+ing)\s+)?(?=\S)|of\s+)?""",
    FLAGS,
)
# "It happened on", "He died in", "It means".
# Also "On July 4", "in the desert", "In Paris", "Written by Stephen King"; not "In Cold Blood".
OPENING = regex.compile(
    rf"""\W*(?:it|he|she|they)\s+(?:(?-i:\p{{Ll}}+)\s+){{1,3}}?(?:{PREPOSITION}|of)\s+
    |\W*(?:it|he|she|they)\s+(?-i:\p{{Ll}}+(?:ed|s)|had|have|took|spoke|won|wrote|sang|stood\s+for)\s+(?:for\s+)?
    |\W*(?:{PREPOSITION}|about|approximately|roughly|circa|c\.)\s+(?=(?-i:\p{{Ll}})|\d|{MONTH}\b)
    |\W*(?:in|at|from|by|near)\s+(?=(?-i:\p{{Lu}})[\p{{L}}'’-]*(?:,|\W*$))
    |\W*\p{{L}}+(?:ed|en|wn|ung)\s+(?-i:by)\s+(?=(?-i:\p{{Lu}}))""",
    FLAGS,
)
# Of "the Scottish author Ian Rankin" and "The 1994 film Pulp Fiction" the description; of "a cellist" and "the Nile"
# the article; and of "about 88 days" the first word.
DESCRIPTION = regex.compile(
    r"(?:an?|the)\s+(?:\p{Lu}\p{Ll}+\s+)?"
    r"(?:(?!(?:of|the|and|or|in|on|for|de|da|di|van|von|bin|to|with)\s)\p{Ll}[\w-]*\s+){1,3}(?=\p{Lu}[^,;.]*(?:[,;.]|$))"
    rf"|(?:The|An?)\s+(?:\d{{4}}\s+)?{WORK}\s+(?=\p{{Lu}})"
    r"|(?:an?|the)\s+|(?:An?|The)\s+(?=\p{Ll})"
    r"|(?:about|approximately|roughly|around|nearly|almost|over)\s+(?=\d)"
)

ABBREVIATIONS = "".join(
    rf"(?<!\b{word})"
    for word in "St Dr Mt Mr Ms Mrs Jr Sr Ft Sgt Gen Gov Sen Capt Lt Col Maj Prof Rev Hon Vol vs v c".split()
)
SENTENCE_END = regex.compile(
    rf"(?<!\b\p{{Lu}})(?<!^\d)(?<!^\d\d){ABBREVIATIONS}(?<!\bNo(?=\.\s\d))\.(?:\s|$)"
    r"|;(?:\s|$)|[!?](?!\s+\p{Ll})(?:\s|$)|\s[(\[]|(?<!\d)\s[–—-]+\s|\s[–—-]+\s(?!\d)"
    r"|\s(?:Q|Question|A|Answer)\s*:"
    r"|:\s(?!\p{Lu}[\p{L}'’]*(?:\s+[\p{Lu}\d]|\s+(?:of|the|and|in|to|a)\s|\W*$))"
)
# "Madrid, Lisbon or Rome": the first of several candidates.
CANDIDATES = regex.compile(r",(?:\s+[^,.;!?]+,)*\s+[^,.;!?]+?\sor\s")
# Words that begin an explanation or a second candidate.
EXPLANATION = regex.compile(
    r"\s(?:because|which|who|whose|that|where|when|while|since|although|though|but|or|as\s+it|according\s+to)\s"
    rf"|\s(?:and|and\s+(?:it|he|she|they))\s+(?:{BE}|has|had|he|she|it|they|also|\p{{Ll}}{{3,}}ed)\s"
    r"|(?<=[\p{Ll}\d])\s+by\s+(?=\p{Lu}[\w.]+\s\p{Lu})"
    r"|,?\s(?:and|&)\s+(?:many\s+)?(?:others|more)\b|,?\s+etc\b"
    r"|(?<=\s(?:and|&)\s+\S+)\s+(?:are|were)\s"
)
# "Charles Dickens wrote Vanity Fair": a name, and then what it did.
NAME_DID = regex.compile(
    rf"(?<=\p{{Lu}}[\w.'’-]*)\s+(?:also\s+|first\s+|originally\s+)?(?:{BE}|wrote|won|sang|sings|did|does|has|had|became|made"
    r"|plays|built|led|began|rose|holds|held|stars|came|gave|ran|lies|stands|sits|\p{Ll}{2,}ed)\s"
)
# "$4.5 million at auction", "324 metres tall", "3 September 1912 in Liverpool".
AFTER_NUMBER = regex.compile(
    r"(?<=\b\d{4})\s+(?:in|at|on|by|for|when|during)\b"
    rf"|(?<=\p{{L}})\s+(?:in|on|during|since)\s+(?:{MONTH}\s+)?(?:\d{{1,2}},?\s+)?\d{{4}}\b"
    r"|(?<=^[$€£]?\d[\d.,]*(?:\s[\p{Ll}%°]\p{L}*){0,3}?)\s+"
    r"(?:tall|long|high|wide|deep|old|away|ago|in|at|on|for|by|above|below)\b"
)
# Not ", a Soviet writer and playwright", which describes what stands before it.
NAME = (
    r"(?:[Tt]he\s+)?\p{Lu}[\p{L}\d.'’-]*"
    r"(?:\s+(?:(?:of|the|de|la|le|du|da|di|del|der|van|von|bin|al)\s+){0,2}[\p{Lu}\d][\p{L}\d.'’-]*)*"
)
ITEM = rf"(?:(?:the\s+)?(?!an?\s)[\p{{L}}\d][\p{{L}}\d.'’-]*(?:\s+[\p{{L}}\d][\p{{L}}\d.'’-]*){{0,2}}|(?-i:{NAME}))"
ENDS = r"(?=\W*$|[.;:!?]\s|,|\s+[(–—])"
# And bare lists: "John, Paul, George", "hydrogen, oxygen, carbon", and "John Lennon, Paul McCartney", also where the
# text breaks off.
UNFINISHED = r"(?=(?:,?\s+(?:and|&))?\W*$|[.;:!?]\s|\s+[(–—])"
SMALL_ITEM = r"(?!(?:an?|the|i|it|he|she|they|we|you|which|who|but|so|in|on|at|not)\b)[\p{L}'’-]+(?:\s+[\p{L}'’-]+)?"
TWO_WORDS = rf"\p{{Lu}}[\p{{L}}.'’-]*\s+{NAME}"
LIST = regex.compile(
    rf"(?i:{ITEM}(?:,\s+{ITEM})+,?\s+(?:and|&)\s+(?:the\s+)?)"
    rf"(?:(?i:{ITEM}){ENDS}|[\p{{L}}\d'’-]+(?:\s+\p{{Lu}}[\p{{L}}'’-]*)*)"
    rf"|(?:{NAME}(?:,\s+{NAME}){{2,}}|(?i:{SMALL_ITEM}(?:,\s+{SMALL_ITEM}){{2,}})|{TWO_WORDS},\s+{TWO_WORDS}){UNFINISHED}"
)
# What is left of a list that breaks off.
LEFT_OVER = regex.compile(r"(?:[\s,]+(?:and|or|&))+\W*$")
# A comma, but not before a year, and not before a region: "Portland, Oregon".
COMMA = regex.compile(
    rf",(?!\s+(?:{MONTH}\s+\d{{1,2}}\b|\d{{3,4}}\b))"
    r"(?!\s+(?:\p{Lu}\.(?:\p{Lu}\.)*|(?:(?:New|North|South|West|East)\s+)?\p{Lu}[\p{L}-]*)(?=\W*$|[.,;)]|\s[(–—]))"
    r"(?:\s|$)"
)
IN_QUOTES = regex.compile(
    r"\W*?(?:\"([^\"]+)\"|“([^”]+)”|(?<!\w)'((?:[^']|'\w)+)'(?!\w)|‘((?:[^’]|’\w)+)’(?!\w)|\*\*([^*]+)\*\*)"
)
INFLECTION = regex.compile(r"(?<=\w{3})(?:ed|ing|e?s)$")
# A full stop that belongs to its word: "D.C.", "Martin Luther King Jr."
STOPPED = regex.compile(r"(?<=\p{Lu}\.\p{Lu}|\b[JS]r)\.")
LETTER = regex.compile(r"[\p{L}\p{N}]")
EDGES = " \t\"'“”‘’«»()[]{}*_.,;:!?"


def short_answer(text: str, question: str = "") -> Span:
    """The short answer inside a text that has words; `question` shows which of them only repeat it."""
    composed, places = _composed(text)
    found = _short_answer(composed, unicodedata.normalize("NFC", question))
    return Span(places[found.start], places[found.end])


def _composed(text: str) -> tuple[str, Sequence[int]]:
    """A text whose accents stand with their letters, as the patterns take them, and where its characters stood."""
    if unicodedata.is_normalized("NFC", text):
        return text, range(len(text) + 1)
    composed, places = "", []
    for cluster in regex.finditer(r"\X", text):
        part = unicodedata.normalize("NFC", cluster[0])
        composed += part
        places += [min(cluster.start() + place, cluster.end() - 1) for place in range(len(part))]
    return composed, [*places, len(text)]


def _short_answer(text: str, question: str) -> Span:
    said = YES_NO.match(text)
    if said:
        return Span(*said.span(1))
    asked = bare_words(question)
    chosen = _alternative(text, asked)
    if chosen:
        return chosen
    found = _from(text, _beginning(text, set(asked)))
    if not asked or "or" in asked:
        return found
    known = set(map(_stem, asked))
    if any(_is_news(word, known) for word in bare_words(text[found.start : found.end])):
        return found
    return _first_news(text, asked, known) or found


def _from(text: str, start: int) -> Span:
    """The short answer that begins at `start`, or after what may stand before it."""
    quoted = IN_QUOTES.match(text, start)
    inside = _trimmed(text, *quoted.span(quoted.lastindex)) if quoted else None
    if inside:
        return inside
    start = _without_article(text, start)
    return _trimmed(text, start, _ending(text, start)) or cast(Span, _trimmed(text, 0, len(text)))


def _is_news(word: str, known: set[str]) -> bool:
    """Whether neither the question has a word nor every sentence: in "The cheetah is a land animal" the cheetah.

    `known` are the stems of the question.
    """
    return word not in FUNCTION_WORDS and _stem(word) not in known


@lru_cache(maxsize=2**16)
def _stem(word: str) -> str:
    return INFLECTION.sub("", word)


def _first_news(text: str, asked: list[str], known: set[str]) -> Span | None:
    """The first stretch of news, for a text that otherwise repeats the question: "The prophet Jonah was swallowed"."""
    first, words = _after_lead_ins(text), normal_words(text)
    start = next((span.start for word, span in words if span.start >= first and _is_news(word, known)), None)
    if start is None:
        return None
    said = AUXILIARIES.union(asked)
    old = (span.start for word, span in words if span.start > start and word in said)
    return _trimmed(text, start, min(_ending(text, start), next(old, len(text))))


def _alternative(text: str, asked: list[str]) -> Span | None:
    """One of the two things that the question lets choose from: to "a quarter or a dime", "A quarter is worth more"."""
    match = SUBJECT_VERB.match(text) if "or" in asked else None
    if not match:
        return None
    subject, between = bare_words(match[1]), asked.index("or")
    before, after = asked[:between], asked[between + 1 :]
    if not subject or (before[-len(subject) :] != subject and after[: len(subject)] != subject):
        return None
    return _trimmed(text, _without_article(text, match.start(1)), match.end(1))


def _beginning(text: str, asked: set[str]) -> int:
    """Where the answer begins, after lead-ins and the clause that it completes."""
    start = _after_lead_ins(text)
    clause = CLAUSE.match(text, start) or _repeated(text, start, asked)
    if clause and _has_word(text[clause.end() :]):
        start = AFTER_VERB.match(text, clause.end()).end()
    else:
        opening = OPENING.match(text, start)
        start = opening.end() if opening else start
    heading = HEADING.match(text, start)
    return heading.end() if heading and asked.issuperset(bare_words(heading[1])) else start


def _after_lead_ins(text: str) -> int:
    start = 0
    for _ in range(4):
        lead = LEAD_IN.match(text, start)
        if not lead or not _has_word(text[lead.end() :]):
            break
        start = lead.end()
    return start


def _repeated(text: str, start: int, asked: set[str]) -> regex.Match | None:
    """A beginning whose subject is the question's, so that the answer follows: "Titanic was directed by ...".

    Not where the rest is the question's as well: to "Which is higher, Ben Nevis or Snowdon?" the answer in "Ben Nevis
    is higher" is the name.
    """
    match = SUBJECT_VERB.match(text, start) if asked else None
    if not match:
        return None
    subject, rest = set(bare_words(match[1])), set(bare_words(text[match.end() :]))
    return match if subject <= asked and not rest - SMALL_WORDS <= asked else None


def _without_article(text: str, start: int) -> int:
    start = len(text) - len(text[start:].lstrip(EDGES))
    lead = DESCRIPTION.match(text, start)
    return lead.end() if lead else start


def _ending(text: str, start: int) -> int:
    """Where an explanation, a second candidate or the next sentence begins."""
    end = len(text)
    for pattern in (SENTENCE_END, CANDIDATES, EXPLANATION, NAME_DID):
        match = pattern.search(text, start + 1, end)
        end = match.start() if match else end
    number = AFTER_NUMBER.search(text[start:end])
    end = start + number.start() if number else end
    return _end_at_comma(text, start, end)


def _end_at_comma(text: str, start: int, end: int) -> int:
    """A comma ends the answer unless it is inside a list, before a region or before a year."""
    if "," not in text[start:end]:
        return end
    listed = LIST.match(text, start, end)
    if listed:
        return listed.end()
    comma = COMMA.search(text, start, end)
    return comma.start() if comma else end


def _trimmed(text: str, start: int, end: int) -> Span | None:
    """The span without quotes and punctuation at its ends; None if no word is left."""
    start = end - len(text[start:end].lstrip(EDGES))
    left_over = LEFT_OVER.search(text, start, end)
    end = left_over.start() if left_over and _has_word(text[start : left_over.start()]) else end
    while end > start and text[end - 1] in EDGES and not STOPPED.match(text, end - 1):
        end -= 1
    return Span(start, end) if _has_word(text[start:end]) else None


def _has_word(text: str) -> bool:
    return LETTER.search(text) is not None or bool(bare_words(text))  # a symbol may be read as a letter: "Ⓞ"
