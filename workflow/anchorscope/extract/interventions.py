"""Which tokens an intervention cuts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anchorscope.answer.draws import own_draw
from anchorscope.answer.prompts import Encoded
from anchorscope.extract.axes import CONTROLS, EXACT, window_of
from anchorscope.text.content_words import content_spans
from anchorscope.text.spans import Span

# The control draws from this many tokens before the question, or from more when it needs more.
CONTROL_REACH = 16


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


def exact_question(prompted: PromptedQuestion) -> list[int]:
    """The paper's knockout: the exact question tokens."""
    return prompted.exact_tokens()


def subject(prompted: PromptedQuestion) -> list[int]:
    """Of these, the tokens of the subject that the dataset names."""
    return prompted.exact_tokens("subject")


def property_words(prompted: PromptedQuestion) -> list[int]:
    """The other exact question tokens, where the subject is known."""
    return prompted.exact_tokens("property")


def content(prompted: PromptedQuestion) -> list[int]:
    """What a list of function words leaves of the question, without any other rule."""
    return prompted.encoded.tokens_of(content_spans(prompted.question))


def whole_question(prompted: PromptedQuestion) -> list[int]:
    """Every token of the question, function words included."""
    return prompted.encoded.question_tokens


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
    "exact_question": exact_question,
    "subject": subject,
    "property": property_words,
    "content": content,
    "whole_question": whole_question,
}
KNOCKOUT_OF = {control: knockout for knockout, control in CONTROLS.items()}


def cut_tokens(intervention: str, prompted: PromptedQuestion) -> list[int]:
    """The tokens that no later token may see."""
    if intervention == "clean":
        return []
    if intervention in KNOCKOUT_OF:
        cut = KNOCKOUTS[KNOCKOUT_OF[intervention]](prompted)
        return drawn_instead(cut, prompted, control=intervention)
    return KNOCKOUTS[EXACT if window_of(intervention) else intervention](prompted)
