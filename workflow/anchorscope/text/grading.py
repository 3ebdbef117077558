"""Is an answer right, wrong or a refusal, and which of its characters are the exact answer?"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

from anchorscope.text.alias_readings import ROMAN, TELLING, TITLES, after_titles, is_short_of, names, shorter_names
from anchorscope.text.compared_words import Word, Words, compared_words, contain, equal, texts
from anchorscope.text.content_words import FUNCTION_WORDS
from anchorscope.text.normal_words import ARTICLES, bare_words, normal_words
from anchorscope.text.refusals import is_refusal
from anchorscope.text.short_answer import short_answer
from anchorscope.text.spans import Span

YES_NO = (("yes",), ("no",))
ASKS_WHO = frozenset(("who", "whom", "whose"))


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
    if not bare_words(answer):
        return Label(None, None)
    matched = find_gold(answer, gold, question)
    # A gold answer may itself read like a refusal ("None"); a refusal that mentions one is still a refusal.
    spoken = matched is not None and matched.start == normal_words(answer)[0][1].start
    if is_refusal(answer) and not spoken:
        return Label(None, None)
    return Label(matched is not None, short_answer(answer, question))


def find_gold(answer: str, gold: list[str], question: str = "") -> Span | None:
    """The first, then longest, stretch of the answer that is a gold alias; yes or no only as the first word."""
    if not gold or not bare_words(answer):
        return None
    said = _Said.read(answer, question)
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

    @classmethod
    def read(cls, answer: str, question: str) -> "_Said":
        short = short_answer(answer, question)
        return cls(
            answer,
            question,
            words=compared_words(answer),
            short=short,
            short_words=texts(answer[short.start : short.end]),
            asked=texts(question),
        )

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
        if any(map(self._is_all_that_is_said, shorter_names(alias, self.question))) or self._is_short_of(alias):
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

    def _is_short_of(self, alias: str) -> bool:
        """Whether given names are left out, or initials added: "Mark Hope" of "Mark S. Hope", and the reverse."""
        plain = tuple(word for word in self.short_words if len(word) > 1)
        added = 1 < len(plain) < len(self.short_words) and equal(plain, texts(alias))
        return added or is_short_of(self.short_words, alias)

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
        before, after = self._capitals_before(start), self._capitals_after(start)
        if not ASKS_WHO.intersection(self.asked):
            return bool(TELLING.intersection(before)) or bool(after and ROMAN.fullmatch(after[0]))
        known = {word for alias in gold for word in texts(alias)} | TITLES
        strange = [word for word in (*before, *after) if word not in known]
        longer = any(name[0] in words and len(words) > 1 for words in map(texts, gold))
        return bool(strange) and (longer or bool(after) or bool(TELLING.intersection(strange)))

    def _capitals_before(self, start: int) -> list[str]:
        """The capitalised words that lead up to a word, as the names of a person do, the nearest first."""
        return [self.words[place].text for place in takewhile(self._belong, range(start - 1, -1, -1))]

    def _capitals_after(self, start: int) -> list[str]:
        return [self.words[place + 1].text for place in takewhile(self._belong, range(start, len(self.words) - 1))]

    def _belong(self, place: int) -> bool:
        """Whether a word and the next are capitalised and nothing stands between them."""
        one, other = self.words[place], self.words[place + 1]
        between = self.answer[one.span.end : other.span.start]
        return (between in (" ", "-") or (between == ". " and len(one.text) < 3)) and all(
            self.answer[word.span.start].isupper() and word.text not in FUNCTION_WORDS for word in (one, other)
        )
