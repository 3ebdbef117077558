"""Is an answer right, wrong or a refusal, and which of its characters are the exact answer?"""

import re
from dataclasses import dataclass

from anchorscope.text.normal_words import bare_words, normal_words
from anchorscope.text.short_answer import short_answer
from anchorscope.text.spans import Span

YES_NO = (["yes"], ["no"])
REFUSAL = re.compile(
    r"""\W*(?:sorry\W+|unfortunately\W+|as\ an\ ai\b[^,]*,\s*)*(?:
      (?:i|we)\s+(?:really\s+|honestly\s+|just\s+)?(?-i:do\s+not|don['’]?t)\s+(?-i:know|have|remember|recall)
    | (?:(?:i|we)\s+)?(?:do\s+not|don['’]?t)\s+know(?:\s+(?:this|that|it|the\s+answer))?\W*$
    | i(?:\s+a|['’])m\s+(?:not\s+(?:\w+\s+)?(?:sure|certain|able|aware)|unable|unsure|sorry)
    | i\s+(?-i:can(?:not|['’]?t)|could(?:\s+not|n['’]t)|have\s+no\s+idea)
    | (?:no\s+one|nobody)\s+(?:really\s+)?knows
    | there(?:\s+is|['’]s)\s+(?:no|not\s+enough|insufficient)\s+(?:answer|information|data|evidence|way)
    | (?:it|that|this)(?:\s+is|['’]s)\s+(?:not\s+(?:\w+\s+)?(?:known|clear|possible)|unknown|unclear|impossible)
    | (?:the\s+answer\s+is\s+)?(?:n/?a|none|idk|unknown|unsure|sorry|not\s+(?:known|sure|available)|no\s+idea)\W*$
    | sorry,
    )""",
    re.IGNORECASE | re.VERBOSE,
)
# "I'm not sure, but it might be Helsinki" is an answer after all; "I'm sorry, but I cannot say" is not.
ANSWERS_AFTER_ALL = re.compile(
    r"\bbut\s+(?!(?:i|we|there|unfortunately|as)\b(?!\s+(?:think|believe|guess|suppose|would)\b))\w", re.IGNORECASE
)


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
    matched = find_gold(answer, gold)
    if not bare_words(answer) or (REFUSAL.match(answer) and not ANSWERS_AFTER_ALL.search(answer)):
        # A gold answer may itself read like a refusal ("None"); a refusal that mentions one is still a refusal.
        spoken = matched is not None and matched.start == normal_words(answer)[0][1].start
        if not spoken:
            return Label(None, None)
    return Label(matched is not None, short_answer(answer, question))


def find_gold(answer: str, gold: list[str]) -> Span | None:
    """The first, then longest, whole-word occurrence of a gold alias; yes or no only as the first word."""
    words = normal_words(answer) if gold else []
    best: tuple[int, int] | None = None
    for alias in gold:
        target = bare_words(alias)
        if not target:
            continue
        starts = range(1) if target in YES_NO else range(len(words) - len(target) + 1)
        for start in starts:
            if [word for word, _ in words[start : start + len(target)]] == target:
                candidate = (start, -len(target))
                best = candidate if best is None else min(best, candidate)
                break
    if best is None:
        return None
    start, length = best[0], -best[1]
    return Span(words[start][1].start, words[start + length - 1][1].end)
