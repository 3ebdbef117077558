"""The exact question words: the characters of a question that carry its content.

Content is the entity asked about and the property asked for. Wh-words, articles, prepositions,
auxiliaries, pronouns and punctuation are not. Words that compare ("both", "same", "older") are.
"""

from dataclasses import dataclass
from itertools import compress, takewhile

import regex

from anchorscope.text.normal_words import Span

LETTERS = r"[\p{L}\p{N}][\p{L}\p{M}\p{N}\u200c\u200d]*"  # with the vowel signs and joiners of Hindi, Thai and others
WORD = regex.compile(rf"{LETTERS}(?:[.'’\-]{LETTERS})*")
QUOTED = regex.compile(
    r"\"([^\"]+)\"|“([^”]+)”|(?<!\w)'([^']+(?:'\w[^']*)*)'(?!\w)|(?<!\w)‘([^’]+(?:’\w[^’]*)*)’(?!\w)"
)
POSSESSIVE = regex.compile(r"['’]s$")

FUNCTION_WORDS = frozenset(
    """
    what which who whom whose when where why how many much long far often
    a an the this that these those it its he she they him her his hers their theirs them we us our you your i my me
    there here one ones some any such
    of in on at by for from to with without within into onto upon about as than through during between among against
    over under after before since until till via per off out up down near around across along behind beyond toward
    towards
    and or but nor if so because while whereas though although
    is are was were be been being am isn't aren't wasn't weren't
    do does did doing done don't doesn't didn't
    has have had having hasn't haven't hadn't
    can could will would shall should may might must cannot can't couldn't won't wouldn't
    not also too very just only ever
    name names named called known
    please tell give
    """.split()
)
AUXILIARIES = frozenset("is are was were do does did has have had can could will would".split())
# Prepositions elsewhere, but the very thing asked in "Was Oxford founded before Cambridge?"
COMPARING_IN_YES_NO = frozenset(("before", "after"))
# Words that may stand inside a capitalised name: "Lord of the Rings", "Ludwig van Beethoven".
NAME_LINKS = frozenset("of the a de la le du da di del der den van von und".split())


@dataclass(frozen=True)
class ExactSpan(Span):
    """Exact question words, and whether they name the subject or the property asked about."""

    kind: str | None  # subject or property; None where the subject is not known, or not in the question


def exact_question_spans(question: str, subject: str | None = None) -> list[ExactSpan]:
    """The spans of the exact question words, in order; empty when nothing carries content.

    A `subject` known to the dataset is content as a whole where it occurs in the question, and so
    is a quoted title, including the function words inside it.
    """
    subjects = _subject_spans(question, subject)
    whole = subjects + [Span(*match.span(match.lastindex)) for match in QUOTED.finditer(question)]
    words = _words(question)
    texts = [question[word.start : word.end].lower() for word in words]
    ignored = FUNCTION_WORDS - COMPARING_IN_YES_NO if texts and texts[0] in AUXILIARIES else FUNCTION_WORDS
    links = _links_inside_names(question, words)
    before = ["", *texts]
    kept = [
        word
        for index, word in enumerate(words)
        if index in links
        or (texts[index] == "name" and before[index] not in ignored | {""})  # "maiden name", not "the name of"
        or (texts[index] not in ignored and before[index] != "how")  # "how tall"
    ]
    merged = _merged(whole + kept)
    if not subjects:
        return [ExactSpan(span.start, span.end, None) for span in merged]
    return [ExactSpan(span.start, span.end, "subject" if _touches(span, subjects) else "property") for span in merged]


def content_spans(question: str) -> list[Span]:
    """Every word that the list of function words leaves, whatever names, titles and phrases it stands in."""
    return [word for word in _words(question) if question[word.start : word.end].lower() not in FUNCTION_WORDS]


def _words(question: str) -> list[Span]:
    """Every word, without a possessive ending."""
    return [Span(match.start(), match.start() + len(POSSESSIVE.sub("", match[0]))) for match in WORD.finditer(question)]


def _touches(span: Span, others: list[Span]) -> bool:
    return any(span.start < other.end and other.start < span.end for other in others)


def _subject_spans(question: str, subject: str | None) -> list[Span]:
    if not subject or not subject.strip():
        return []
    pattern = rf"(?<!\w){regex.escape(subject.strip())}(?!\w)"
    return [Span(*match.span()) for match in regex.finditer(pattern, question, regex.IGNORECASE)]


def _links_inside_names(question: str, words: list[Span]) -> set[int]:
    """Indices of function words that belong to a capitalised name and so to the content."""
    texts = [question[word.start : word.end] for word in words]
    capital = [text[0].isupper() for text in texts]
    in_sentence = any(text in FUNCTION_WORDS for text in texts[1:])  # unlike a title in which every word is capitalised
    links = {
        index  # "The" of "The Great Gatsby" in mid-sentence, "Too" of "Too Much", "US"; not the pronoun "I"
        for index, text in enumerate(texts)
        if capital[index] and in_sentence and text.lower() in FUNCTION_WORDS
        if not _starts_sentence(question, words[index])
        if text != "I" or capital[index - 1]
    }
    of_name = [text[0].isupper() and text.lower() not in FUNCTION_WORDS for text in texts]
    for first in compress(range(len(words)), of_name):
        run = list(takewhile(NAME_LINKS.__contains__, texts[first + 1 : first + 4]))
        last = first + 1 + len(run)
        if run and any(of_name[last : last + 1]) and "," not in question[words[first].end : words[last].start]:
            links.update(range(first + 1, last))
    return links


def _starts_sentence(question: str, word: Span) -> bool:
    before = question[: word.start].rstrip(" \"'“‘(")
    return not before or before[-1] in ".!?:"


def _merged(spans: list[Span]) -> list[Span]:
    merged: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if merged and span.start < merged[-1].end:
            merged[-1] = Span(merged[-1].start, max(merged[-1].end, span.end))
        else:
            merged.append(span)
    return merged
