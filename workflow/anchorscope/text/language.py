"""Are questions in English, for which the rules of this package are made?"""

from collections.abc import Iterable

from anchorscope.text.normal_words import bare_words

# Words that most English questions have one of, and that other languages seldom spell so.
ENGLISH = frozenset(
    """
    what which who whom whose where when why how
    and were did does from with have been that this would
    """.split()
)
NOT_ENGLISH = (
    "Most questions are not in English. Exact question words, short answers and forms are found by rules of English, "
    "refusals by common phrases of eight languages: read some questions and answers before you trust the numbers."
)


def mostly_english(questions: Iterable[str]) -> bool:
    """Whether at least half of the questions have a word that marks them as English."""
    marked = [not ENGLISH.isdisjoint(bare_words(question)) for question in questions]
    return 2 * sum(marked) >= len(marked)
