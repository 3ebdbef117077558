"""The form of a question and of an answer: what it is, and that it knows nothing of what is right."""

import json
from collections import Counter

import polars as pl
import pytest

from anchorscope.answer.answers import grade
from anchorscope.questions.normalize import normalize
from anchorscope.text.forms import (
    ANSWER_FORMS,
    FORM_COLUMNS,
    QUESTION_FORMS,
    answer_form,
    answer_in_question,
    question_form,
)
from small_things import ROOT


def cases(name: str) -> list[dict]:
    return [json.loads(line) for line in (ROOT / f"tests/cases/{name}.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("form", QUESTION_FORMS)
def test_questions_have_the_form_that_a_reader_gave_them(form):
    questions = [row["question"] for row in cases("question_forms") if row["form"] == form]
    assert len(questions) >= 6
    assert {question: question_form(question) for question in questions} == dict.fromkeys(questions, form)


@pytest.mark.parametrize("form", ANSWER_FORMS)
def test_answers_have_the_form_that_a_reader_gave_them(form):
    rows = [row for row in cases("answer_forms") if row["form"] == form]
    assert len(rows) >= 3
    for row in rows:
        said = row["exact_answer"], row["question"]
        assert (answer_form(*said), answer_in_question(*said)) == (form, row["in_question"]), said


def test_case_and_a_missing_question_mark_change_few_forms():
    """Names are told by their capitals, so a choice without commas may be missed in lower case, and nothing else."""
    rows = [row for row in cases("question_forms") if row["form"] in ("yes_no", "who", "when", "where", "how_many")]
    plain = [question_form(row["question"].lower().rstrip("?")) for row in rows]
    missed = [row["question"] for row, form in zip(rows, plain, strict=True) if form != row["form"]]
    assert len(missed) <= len(rows) / 20, missed


@pytest.mark.parametrize("text", ["", "?", "or", "Which or", "東京はどこ", "which of", "between and who", "'", "Q:"])
def test_every_text_has_a_form(text):
    assert question_form(text) in QUESTION_FORMS
    assert answer_form(text, text) in ANSWER_FORMS


def test_the_form_of_a_question_is_the_same_whatever_the_gold_answer():
    questions = [row["question"] for row in cases("question_forms")]
    by_gold = [
        dict(
            normalize(
                pl.DataFrame({"question": questions, "answer": [[gold]] * len(questions)}), "nq", seed=0, where="f"
            )[0]
            .select("question", "question_form")
            .iter_rows()
        )
        for gold in ("yes", "Rome", "1912")
    ]
    assert by_gold[0] == by_gold[1] == by_gold[2]
    assert set(by_gold[0].values()) == set(QUESTION_FORMS)


def test_the_form_of_an_answer_is_the_same_whether_it_is_right_or_wrong(tokenizer):
    right = Counter()
    for row in cases("answer_forms"):
        ids = tokenizer(f" {row['exact_answer']}\n")["input_ids"]
        graded = [
            grade(tokenizer, ids, gold=[gold], question=row["question"])
            for gold in (row["exact_answer"], "nothing of the kind")
        ]
        right.update(one["right"] for one in graded)
        first, second = ({name: one[name] for name in FORM_COLUMNS[1:]} for one in graded)
        assert first == second
        assert first["answer_form"] in ANSWER_FORMS
    assert right[True] > 20 < right[False], "labels differ where forms do not"


def test_a_refusal_has_no_form(tokenizer):
    ids = tokenizer(" I don't know\n")["input_ids"]
    row = grade(tokenizer, ids, gold=["Rome"], question="Which is older, Rome or Bonn?")
    assert (row["refused"], row["answer_form"], row["answer_in_question"]) == (True, None, None)
