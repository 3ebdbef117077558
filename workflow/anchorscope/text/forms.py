"""The form of a question, by what it asks with, and of an answer, by its text.

Rules of English that see neither the accepted answers nor whether an answer is right: if they did, a form would tell
the label. Tested on the hand-written questions and answers in tests/cases.
"""

from dataclasses import dataclass
from functools import cached_property

import regex

from anchorscope.text.content_words import AUXILIARIES, FUNCTION_WORDS, QUOTED, WORD
from anchorscope.text.normal_words import MONTH, bare_words

YES_OR_NO, CHOICE, WHO, WHEN, WHERE, HOW_MANY = "yes_no", "choice", "who", "when", "where", "how_many"
WHICH_WHAT, NUMBER, DATE, IN_QUESTION, OTHER = "which_what", "number", "date", "in_question", "other"
QUESTION_FORMS = (YES_OR_NO, CHOICE, WHO, WHEN, WHERE, HOW_MANY, WHICH_WHAT, OTHER)
ANSWER_FORMS = (YES_OR_NO, NUMBER, DATE, IN_QUESTION, OTHER)
FORM_COLUMNS = ("question_form", "answer_form", "answer_in_question")  # of tables with a row per example

# What stands in quotes or brackets is a name as a whole: "Trick or Treat" offers nothing to choose from.
ONE_NAME = regex.compile(rf"{QUOTED.pattern}|\([^)]*\)|\[[^]]*\]")
A_NAME = "Quoted"
NUMBERED = regex.compile(r"^\W*q(?:uestion)?\s*\d*\s*[:.]", regex.I)  # "Q1: Which ..."
# "who or what", "his or her", "two or more", "or not"
ONE_THING = regex.compile(r"\b(who|what|when|where|his|he|one|two|more|either)\s+or\b|\bor\s+(?:not|so)\b", regex.I)
TOKEN = regex.compile(rf"{WORD.pattern}|[,;:?!]|(?<!\b[A-Z])\.(?=\s|$)")
ENDS = frozenset(("", *".?!:;"))  # beside a sentence; nothing where the question begins or ends
BREAKS = frozenset(",;:?")  # before or after alternatives

ASKED_WITH = {
    **dict.fromkeys(("who", "whom", "whose", "who's", "whos"), WHO),
    **dict.fromkeys(("which", "what", "what's", "whats"), WHICH_WHAT),
    **dict.fromkeys(("when", "when's", "whens"), WHEN),
    **dict.fromkeys(("where", "where's", "wheres"), WHERE),
    **dict.fromkeys(("how", "how's", "why"), OTHER),
}
MEASURES = frozenset("many much long old tall high far big large deep wide heavy fast hot often".split())
COMPARATIVES = frozenset(
    """
    first last second earlier earliest later latest sooner more most less least fewer older oldest elder younger
    youngest larger largest bigger biggest smaller smallest taller tallest higher highest lower lowest longer longest
    shorter shortest faster fastest heavier heaviest closer closest nearer nearest farther further better best worse
    """.split()
)
PREPOSITIONS = frozenset(
    "in on at by for from of to with between among during after before since under as within over through about".split()
)
FRONTING = PREPOSITIONS | frozenset("if when while where although according based known besides out against".split())
CLAUSES = frozenset("and but that also usually typically often especially including".split()) | FRONTING
FROM_AMONG = frozenset("between of out among amongst comparing".split())
ORDERS = frozenset("name give identify list complete".split())  # "Name the capital of Peru"
LINKS = frozenset("of the a an and de la le du van von in to for on".split())

FLAGS = regex.IGNORECASE | regex.VERBOSE
NUMERAL = r"""
    (?:zero|one|two|three|five|ten|eleven|twelve|(?:four|six|seven|eight?|nine)(?:teen|ty)?|(?:thir|fif)(?:teen|ty)
    |(?:twen|for)ty|hundreds?|thousands?|[bmtr]illions?|half|dozen|first|second|third
    |(?:four|fif|six|seven|eigh|nin|ten|eleven|twelf|hundred|[a-z]+t(?:ie|een))th)
"""
# "5", "1,200 miles", "about 40 %", "$3.5 million", "twenty-one", "the 16th"; not "7 Up" or "Seven Samurai"
NUMBERS = regex.compile(
    rf"""
    (?:(?:about|around|over|nearly|almost|approximately|roughly|more\s+than|at\s+least|the)\s+)*
    (?:[-−+]?[$€£¥]?\d[\d.,:/'’]*(?:st|nd|rd|th)?|{NUMERAL}\b)
    (?:(?:\s*[-–—]\s*|\s+(?:and|to)\s+|\s+)(?:[$€£¥]?\d[\d.,]*|{NUMERAL}\b))*
    (?:\s?[%°])?
    (?:\s?(?-i:[a-zµ²³]+|[kMG]?[BCFKVW]|[AP]M)\b){{0,4}}
    """,
    FLAGS,
)
YEAR = r"(?:c(?:\.|irca)\s?)?(?:1\d{3}|20\d\d)(?:['’]?s)?"
ERA = r"(?:b\.?c\.?(?:e\.?)?|a\.?d\.?|c\.?e\.?)"
DAY = r"\d{1,2}(?:st|nd|rd|th)?"
# "1912", "1939–45", "the 1980s", "July 4, 1776", "the 4th of July", "44 BC", "late 19th century"
DATES = regex.compile(
    rf"""
    (?:(?:in|on|since|around|early|late|mid|the)[\s-]+)*
    (?:{YEAR}(?:\s*(?:[-–—/]|to|and|until)\s*(?:{YEAR}|\d\d|present))?
    |(?:\w+day,?\s+)?{DAY}\s+(?:of\s+)?{MONTH}(?:,?\s+\d{{3,4}})?
    |(?:\w+day,?\s+)?{MONTH}(?:\s+{DAY}(?:\s?[-–—]\s?{DAY})?)?(?:,?\s+(?:of\s+)?\d{{4}})?
    |\d{{1,4}}[./-]\d{{1,2}}[./-]\d{{2,4}}
    |\d{{1,4}}\s*{ERA}|a\.?d\.?\s*\d{{1,4}}
    |(?:{DAY}|{NUMERAL})[\s-]+century(?:\s+{ERA})?)
    """,
    FLAGS,
)


@dataclass(frozen=True)
class _Asked:
    """A question's words and punctuation marks."""

    tokens: list[str]

    @cached_property
    def words(self) -> list[str]:
        """In lower case."""
        return [token.lower().replace("’", "'") for token in self.tokens]

    @cached_property
    def has_case(self) -> bool:
        return any(token[0].isupper() for token in self.tokens)

    def is_name(self, index: int) -> bool:
        """Whether a word looks like a part of a name."""
        return index < len(self.tokens) and (self.tokens[index][0].isupper() or self.tokens[index][0].isdigit())

    def after_article(self, index: int) -> int:
        return index + 1 if index < len(self.words) and self.words[index] in ("the", "a", "an") else index

    @cached_property
    def first_asking(self) -> int | None:
        """The first word to ask with that is not a part of a name."""
        return next(
            (index for index, word in enumerate(self.words) if word in ASKED_WITH and _strength(self, index)), None
        )


def question_form(question: str) -> str:
    """One of `QUESTION_FORMS`."""
    text = NUMBERED.sub("", question)
    asked = _Asked(TOKEN.findall(ONE_THING.sub(r"\1 ", ONE_NAME.sub(f" {A_NAME} ", text))))
    if _offers_alternatives(asked):
        return CHOICE
    if _begins_with_auxiliary(asked):
        return YES_OR_NO
    return _asked_with(asked) or _asked_with(_Asked(TOKEN.findall(text))) or OTHER


def _begins_with_auxiliary(asked: _Asked) -> bool:
    """Also after a comma: "In 1990, was Bonn a capital?"; but not "Can you name ..."."""
    words = asked.words
    start = words.index(",") + 1 if words and words[0] in FRONTING and "," in words else 0
    first = words[start : start + 3]
    return bool(first) and first[0].split("n't")[0] in AUXILIARIES and first[1:] != ["you", "name"]


def _offers_alternatives(asked: _Asked) -> bool:
    joints = (index for index, word in enumerate(asked.words) if word == "or")
    return _from_among(asked) or _which_of(asked) or any(_joins_alternatives(asked, joint) for joint in joints)


def _joins_alternatives(asked: _Asked, joint: int) -> bool:
    """Whether the "or" at `joint` stands between answers to choose from."""
    first = asked.first_asking
    if first is None or first > joint:
        return _begins_with_auxiliary(asked) and "both" not in asked.words
    marks = [index for index in range(first, joint) if asked.words[index] in BREAKS]
    begins = [index + 1 for index in marks if asked.tokens[index + 1] not in CLAUSES | ASKED_WITH.keys() | {"or"}]
    if begins:
        return _apart(asked, begins[0], joint)
    compared = not COMPARATIVES.isdisjoint(asked.words[first:joint])
    if not asked.has_case:  # "who came first romulus or remus"
        return compared and asked.words[first] in ("who", "which")
    return _names_at(asked, first, joint=joint, compared=compared)


def _apart(asked: _Asked, begin: int, joint: int) -> bool:
    """Alternatives that stand apart: "Which is older, Rome or Bonn?", "Which city, Rome or Bonn, is older?"

    Not a list: "What can be 'red', 'green' or 'blue'?"
    """
    if asked.tokens[begin - 2] == A_NAME and A_NAME in asked.tokens[begin : joint + 3]:
        return False
    beside = begin - 1 - (asked.first_asking or 0) <= 7 and asked.is_name(asked.after_article(begin))
    left = [word for word in asked.words[joint + 1 :] if word not in BREAKS]
    return beside or len(left) <= 10


def _names_at(asked: _Asked, first: int, joint: int, compared: bool) -> bool:
    """Names on both sides: "Who is older Romulus or Remus?"; not "Who wrote the first draft of Hide or Seek?"."""
    if not asked.is_name(joint - 1) or not asked.is_name(asked.after_article(joint + 1)):
        return False
    begin = joint - 1
    while begin - 1 > first and (asked.is_name(begin - 1) or asked.words[begin - 1] in LINKS):
        begin -= 1
    if asked.words[begin] in PREPOSITIONS:
        return False
    return compared or (asked.words[first] == "which" and 2 <= begin - first <= 4)  # "Which city Rome or Bonn is ..."


def _from_among(asked: _Asked) -> bool:
    """ "Between Rome and Bonn, which is older?"; not "Between 1990 and 1999, which ..."."""
    first = asked.first_asking
    if not asked.words or asked.words[0] not in FROM_AMONG or first is None:
        return False
    joined = (asked.after_article(index + 1) for index in range(first) if asked.words[index] in ("and", "or"))
    return any(asked.is_name(index) or not asked.has_case for index in joined if not asked.tokens[index][0].isdigit())


def _which_of(asked: _Asked) -> bool:
    """ "Which of Rome and Bonn is older?"; not "Which of Rome's kings ..."."""
    first = asked.first_asking
    if first is None or asked.words[first] != "which":
        return False
    begin = first + 1 + (asked.words[first + 1 : first + 2] == ["one"])
    if asked.words[begin : begin + 1] != ["of"]:
        return False
    index = begin + 1
    while asked.is_name(index) or (index < len(asked.words) and asked.words[index] in LINKS - {"and"}):
        index += 1
    second = asked.after_article(index + 1)
    joined = index < len(asked.words) and asked.words[index] == "and"
    return joined and asked.is_name(second) and not asked.words[second].endswith("'s")


def _asked_with(asked: _Asked) -> str | None:
    """The form of the word that a question most plainly asks with; None if there is none."""
    if asked.words and asked.words[0] in ORDERS:
        return OTHER
    places = [index for index, word in enumerate(asked.words) if word in ASKED_WITH]
    if not places:
        return None
    place = max(places, key=lambda index: _strength(asked, index))  # the first of equals
    if place > 0 and _strength(asked, place) == 1 and "?" not in asked.words:  # "the actor who played Robin"
        return OTHER
    measured = asked.words[place] == "how" and asked.words[place + 1 : place + 2] and asked.words[place + 1] in MEASURES
    return HOW_MANY if measured else ASKED_WITH[asked.words[place]]


def _strength(asked: _Asked, index: int) -> int:
    """How plainly a word asks: 4 where it must, 1 where it is likely a relative ("the town where"), 0 in a name."""
    words = asked.words
    word, before = words[index], words[index - 1] if index else ""
    follower = words[index + 1] if index + 1 < len(words) else ""
    first, last = before in ENDS, follower in ENDS
    if asked.tokens[index][0].isupper() and not first:
        return 0
    if ASKED_WITH[word] in (WHEN, WHERE):  # "When Rome fell, who ruled it?"
        return 4 if last or (first and follower in AUXILIARIES) else 3 if follower in AUXILIARIES else 1
    if first or last or word.startswith("what") or (word == "how" and follower in MEASURES):
        return 4
    if word == "which" and (follower == "one" or follower not in FUNCTION_WORDS):  # "which country"
        return 3 if asked.is_name(index + 1) else 4  # "the film in which Homer" may be relative
    fronted = words[0] in FRONTING
    return 3 if (fronted and before == ",") or before in PREPOSITIONS or word == "how" else 2 if fronted else 1


def answer_form(exact: str, question: str) -> str:
    """One of `ANSWER_FORMS`, of the exact answer to a question."""
    text = exact.strip(" .,;!?\"'“”‘’*")
    if bare_words(text) in (["yes"], ["no"]):
        return YES_OR_NO
    counted = text.isdigit() and question_form(question) == HOW_MANY  # "1500" need not be a year
    if DATES.fullmatch(text) and not counted:
        return DATE
    if NUMBERS.fullmatch(text):
        return NUMBER
    return IN_QUESTION if answer_in_question(exact, question) else OTHER


def answer_in_question(exact: str, question: str) -> bool:
    """Whether the exact answer's words stand in the question, so that cutting the question's words cuts the answer."""
    words = bare_words(exact)
    content = [word for word in words if word not in FUNCTION_WORDS] or words
    return bool(content) and content not in (["yes"], ["no"]) and set(content) <= set(bare_words(question))
