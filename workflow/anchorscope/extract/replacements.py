"""Which tokens an experiment puts in the place of an example's own prompt, or of parts of it."""

from dataclasses import dataclass

from anchorscope.answer.draws import own_draw

# Which of an example's donors gives the tokens; in `answer_only` nothing stands in the prompt's place.
DONOR_OF = {
    "patch_question": "donor_wrong",
    "patch_random": "donor_wrong",
    "patch_right": "donor_right",
    "answer_after_other": "other",
    "answer_only": None,
}


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
