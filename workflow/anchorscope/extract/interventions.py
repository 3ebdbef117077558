"""Which tokens an intervention cuts, or puts in the place of an example's own prompt or of parts of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anchorscope.answer.donors import own_draw
from anchorscope.answer.prompts import Encoded
from anchorscope.extract.axes import CONTROLS, EXACT, window_of
from anchorscope.text.content_words import content_spans
from anchorscope.text.normal_words import Span

# The control draws from this many tokens before the question, or from more when it needs more.
CONTROL_REACH = 16
KNOCKOUT_OF = {control: knockout for knockout, control in CONTROLS.items()}
# Which of an example's donors gives the tokens; in `answer_only` nothing stands in the prompt's place.
DONOR_OF = {
    "patch_question": "donor_wrong",
    "patch_random": "donor_wrong",
    "patch_right": "donor_right",
    "answer_after_other": "other",
    "answer_only": None,
}


@dataclass(frozen=True)
class PromptedQuestion:
    """One example's question under one prompt."""

    id: str
    question: str
    spans: Sequence[dict]  # start, end and kind of the exact question words
    encoded: Encoded

    def exact_tokens(self, kind: str | None = None) -> list[int]:
        """The exact question tokens, all or those of one kind."""
        chosen = [span for span in self.spans if kind is None or span["kind"] == kind]
        return self.encoded.tokens_of([Span(span["start"], span["end"]) for span in chosen])


def drawn_instead(cut: list[int], prompted: PromptedQuestion, control: str) -> list[int]:
    """The control: as many tokens of the question that carry no content, drawn by the example's own seed.

    Where the question has too few, the rest comes from the tokens just before it. The sequence's first token and
    special tokens are never drawn: they hold attention for reasons of their own.
    """
    draw = own_draw(control, prompted.id)
    encoded = prompted.encoded
    question = encoded.question_tokens
    others = sorted(set(question) - set(cut) - set(prompted.exact_tokens()))
    if len(others) >= len(cut):
        return sorted(draw.sample(others, len(cut)))
    missing = len(cut) - len(others)
    never = {*encoded.special, *cut}
    before = [index for index in range(1, question[0]) if index not in never]
    before = before[-max(CONTROL_REACH, missing) :]
    return sorted(others + draw.sample(before, min(missing, len(before))))


# One line per knockout; the same code measures all of them. CONTROLS in axes.py names their controls.
KNOCKOUTS: dict[str, Callable[[PromptedQuestion], list[int]]] = {
    "exact_question": PromptedQuestion.exact_tokens,
    "subject": lambda prompted: prompted.exact_tokens("subject"),  # which the dataset names
    "property": lambda prompted: prompted.exact_tokens("property"),  # the other exact ones, where the subject is known
    # What a list of function words leaves of the question, without any other rule.
    "content": lambda prompted: prompted.encoded.tokens_of(content_spans(prompted.question)),
    "whole_question": lambda prompted: prompted.encoded.question_tokens,
}


def cut_tokens(intervention: str, prompted: PromptedQuestion) -> list[int]:
    """The tokens that no later token may see."""
    if intervention == "clean":
        return []
    if intervention in KNOCKOUT_OF:
        cut = KNOCKOUTS[KNOCKOUT_OF[intervention]](prompted)
        return drawn_instead(cut, prompted, control=intervention)
    return KNOCKOUTS[EXACT if window_of(intervention) else intervention](prompted)


@dataclass(frozen=True, slots=True)
class QuestionTokens:
    """A prompt with its question, and which of its tokens are the question's."""

    id: str
    popularity: int | None
    ids: list[int]
    exact: list[int]  # indices of the exact question tokens
    others: list[int]  # of the question's other tokens


@dataclass(frozen=True)
class Replaced:
    """A prompt in which tokens were replaced."""

    ids: list[int]
    count: int  # of its own tokens, how many were
    kept: int = 0  # how many were not, because the donor had too few


def replaced_prompt(intervention: str, own: QuestionTokens, donor: QuestionTokens | None, bos: int | None) -> Replaced:
    """What stands before the answer. Without a donor it is the example's own prompt."""
    if intervention == "answer_only":
        return Replaced([] if bos is None else [bos], len(own.ids))
    if donor is None:
        return Replaced(own.ids, 0)
    if intervention == "answer_after_other":
        return Replaced(donor.ids, len(own.exact) + len(own.others))
    return patch_random(own, donor) if intervention == "patch_random" else patch_question(own, donor)


def patch_question(own: QuestionTokens, donor: QuestionTokens) -> Replaced:
    """The exact question tokens become the donor's, the last ones the last.

    So surplus ones of the donor are dropped from the front; where it has too few, the first ones stay as they are.
    """
    count = min(len(own.exact), len(donor.exact))
    places, given = own.exact[len(own.exact) - count :], donor.exact[len(donor.exact) - count :]
    return _patched(own, donor, places, given, wanted=len(own.exact))


def patch_random(own: QuestionTokens, donor: QuestionTokens) -> Replaced:
    """The control: as many tokens of the question that are not exact ones become such tokens of the same donor.

    Which ones is drawn by the example's own seed; they are as few as the question with fewer of them has.
    """
    wanted = min(len(own.exact), len(donor.exact))
    count = min(wanted, len(own.others), len(donor.others))
    draw = own_draw("patch_random", own.id)
    places, given = sorted(draw.sample(own.others, count)), sorted(draw.sample(donor.others, count))
    return _patched(own, donor, places, given, wanted=wanted)


def _patched(own: QuestionTokens, donor: QuestionTokens, places: list[int], given: list[int], wanted: int) -> Replaced:
    ids = list(own.ids)
    for place, token in zip(places, given, strict=True):
        ids[place] = donor.ids[token]
    return Replaced(ids, len(places), wanted - len(places))
