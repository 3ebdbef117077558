"""Every question gets the donors that the method says, and which ones does not depend on the others' order."""

import random

import pytest

from anchorscope.answer.answers import plan
from anchorscope.answer.donors import Lengths, find_donors
from anchorscope.text.normal_words import normal_words
from few_examples import QUESTIONS, prompts


def row(name: str, right: bool | None, gold: str, subject: str | None = None) -> dict:
    return {"id": name, "right": right, "gold": [gold], "subject": subject}


def donors(rows: list[dict], exact: list[int], whole: list[int] | None = None) -> dict[str, dict]:
    lengths = [Lengths(*pair) for pair in zip(exact, whole or [9] * len(rows), strict=True)]
    return {one["id"]: found for one, found in zip(rows, find_donors(rows, lengths), strict=True)}


def test_a_donor_has_as_many_exact_tokens_or_the_nearest_number():
    rows = [row("own", True, "Paris"), row("far", False, "Rome"), row("near", False, "Lima"), row("fits", True, "Oslo")]
    found = donors(rows, exact=[4, 7, 2, 4])["own"]
    assert found["donor_wrong"] == "near"
    assert found["donor_right"] == "fits"


def test_the_subject_the_answer_and_the_question_itself_are_other_ones():
    rows = [
        row("own", False, "Paris", "France"),
        row("same subject", False, "Rome", "France"),
        row("same answer", False, "the PARIS!", "Texas"),
        row("neither", False, "Lima", "Peru"),
    ]
    found = donors(rows, exact=[3, 3, 3, 9], whole=[5, 5, 5, 9])["own"]
    assert found == {"donor_wrong": "neither", "donor_right": None, "other": "neither"}


def test_without_subjects_the_answers_alone_tell_questions_apart():
    rows = [row("a", False, "Paris"), row("b", False, "Rome")]
    assert donors(rows, exact=[1, 1])["a"]["donor_wrong"] == "b"


def test_a_refused_question_is_no_donor_of_words_but_may_stand_in_the_place_of_another():
    rows = [row("own", True, "Paris"), row("refused", None, "Rome")]
    found = donors(rows, exact=[2, 2])
    assert found["own"] == {"donor_wrong": None, "donor_right": None, "other": "refused"}
    assert found["refused"] == {"donor_wrong": None, "donor_right": "own", "other": "own"}


def test_the_other_question_is_as_long_in_all_however_many_of_its_tokens_are_exact():
    rows = [row("own", True, "a"), row("same words", True, "b"), row("same length", True, "c")]
    assert donors(rows, exact=[2, 2, 8], whole=[10, 13, 11])["own"]["other"] == "same length"


def fits(own: dict, one: dict) -> bool:
    answers = [{" ".join(word for word, _ in normal_words(alias)) for alias in some["gold"]} for some in (own, one)]
    return (
        one["id"] != own["id"]
        and (own["subject"] is None or own["subject"] != one["subject"])
        and not answers[0] & answers[1]
    )


@pytest.mark.parametrize("seed", range(5))
def test_no_question_that_fits_is_nearer_and_every_one_as_near_can_be_drawn(seed):
    """Each pair of questions looked at, one by one."""
    draw = random.Random(seed)
    names = [f"{seed} {number}" for number in range(60)]
    rows = [row(name, draw.choice([True, False, None]), draw.choice("abcdef"), draw.choice("xyz")) for name in names]
    exact, whole = ({name: draw.randrange(1, 12) for name in names} for _ in range(2))
    found = donors(rows, [exact[name] for name in names], [whole[name] for name in names])
    order = draw.sample(rows, len(rows))
    again = donors(order, [exact[one["id"]] for one in order], [whole[one["id"]] for one in order])
    assert again == found
    choices = []
    for column, verdicts, length in (
        ("donor_wrong", [False], exact),
        ("donor_right", [True], exact),
        ("other", [True, False, None], whole),
    ):
        for own in rows:
            fitting = [one["id"] for one in rows if one["right"] in verdicts and fits(own, one)]
            nearest = min(abs(length[name] - length[own["id"]]) for name in fitting)
            as_near = [name for name in fitting if abs(length[name] - length[own["id"]]) == nearest]
            assert found[own["id"]][column] in as_near
            choices.append((found[own["id"]][column], sorted(as_near)))
    several = [as_near.index(chosen) / (len(as_near) - 1) for chosen, as_near in choices if len(as_near) > 1]
    assert {0.0, 1.0} <= set(several), "always the same one of several"


def test_lengths_are_counted_in_tokens_under_the_first_prompt(tokenizer):
    (text,) = [question for question in QUESTIONS if "capital of France" in question]
    start = text.index("capital")
    spans = [{"start": start, "end": start + len("capital"), "kind": None}]
    asked = plan(tokenizer, prompts()["first"], [{"question": text, "spans": spans}])
    assert asked.lengths == [Lengths(exact=1, whole=len(tokenizer(" " + text)["input_ids"]))]
