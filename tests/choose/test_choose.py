"""Which answers are analysed, and what the file of them says."""

from collections import Counter

import pyarrow as pa
import pytest

from anchorscope.answer.answers import ANSWERS_SCHEMA
from anchorscope.choose.balance import analysed, balanced, before_balance, choose_file
from anchorscope.files.sealed_parquet import made_from, provenance, read_table, write_table


def test_balance_keeps_the_smaller_class_and_an_equal_seeded_draw_of_the_larger():
    ids, right = [str(i) for i in range(10)], [i < 3 for i in range(10)]
    anywhere = [None] * 10
    kept = balanced(ids, right, anywhere, seed=0)
    assert {index for index in kept if right[index]} == {0, 1, 2}
    assert sum(not right[index] for index in kept) == 3
    backwards = balanced(ids[::-1], right[::-1], anywhere, seed=0)
    assert [ids[index] for index in kept] == [ids[::-1][index] for index in backwards]
    assert [right[index] for index in kept] != sorted((right[index] for index in kept), reverse=True), (
        "classes are mixed"
    )
    assert any(balanced(ids, right, anywhere, seed=seed) != kept for seed in range(1, 5))


@pytest.mark.parametrize(("balance", "column"), [("property", "property"), ("form", "question_form")])
def test_balance_within_parts_keeps_as_many_right_as_wrong_of_each(balance, column, caplog):
    """Capitals are mostly right and authors mostly wrong, so that the question alone would tell the label."""
    asked = [("capital", True)] * 30 + [("capital", False)] * 5 + [("author", True)] * 4 + [("author", False)] * 20
    asked += [(None, True)] * 3 + [(None, False)] * 2 + [("mother", False)] * 6
    table = pa.table(
        {
            "id": [f"q{index}" for index in range(len(asked))],
            column: pa.array([name for name, _ in asked], pa.string()),
            "right": [right for _, right in asked],
            "refused": [False] * len(asked),
        }
    )
    kept = Counter((row[column], row["right"]) for row in analysed(table, balance, seed=0).to_pylist())
    assert kept == {
        (name, right): n for name, n in (("capital", 5), ("author", 4), (None, 2)) for right in (True, False)
    }
    caplog.set_level("INFO", logger="anchorscope")
    nameless = table.set_column(1, column, pa.nulls(len(asked), pa.string()))
    assert analysed(nameless, balance, seed=0)["id"] == analysed(table, True, seed=0)["id"]
    assert ("no question names the property that it asks about" in caplog.text) == (balance == "property")


def test_a_shard_without_a_right_answer_has_no_examples():
    wrong = pa.table({"id": ["a", "b", "c"], "right": [False] * 3, "refused": [False] * 3})
    assert len(analysed(wrong, balance=True, seed=0)) == 0
    assert len(analysed(wrong, balance=False, seed=0)) == len(wrong)


ASKED = {"model": {"name": "tiny"}, "prompts": {"style": "few_shot"}}


@pytest.fixture
def answers(tmp_path):
    """A file of ten answers: three right, five wrong, two refused; all right ones are of one form."""
    rows = [{"id": f"r{n}", "right": True, "refused": False, "question_form": "who"} for n in range(3)]
    rows += [
        {"id": f"w{n}", "right": False, "refused": False, "question_form": ("who", "when")[n % 2]} for n in range(5)
    ]
    rows += [{"id": f"x{n}", "right": None, "refused": True, "question_form": "who"} for n in range(2)]
    write_table(tmp_path / "answers.parquet", pa.Table.from_pylist(rows, schema=ANSWERS_SCHEMA), provenance(**ASKED))
    return tmp_path / "answers.parquet"


def test_the_file_has_the_chosen_rows_of_the_answers_and_what_there_was_before(answers, tmp_path):
    target = tmp_path / "chosen.parquet"
    choose_file(answers, target, balance=True, seed=0, code="a test")
    found, given = read_table(target), {row["id"]: row for row in read_table(answers).to_pylist()}
    for row in found.to_pylist():
        assert given[row["id"]].items() <= row.items()
    ids = [name for name, row in given.items() if not row["refused"]]
    right = [given[name]["right"] for name in ids]
    kept = balanced(ids, right, [None] * len(ids), seed=0)
    assert found["id"].to_pylist() == [ids[index] for index in kept]
    said = made_from(target)
    assert {key: said[key] for key in ("stage", "balance", "seed", "code")} == {
        **{"stage": "choose", "balance": True, "seed": 0, "code": "a test"},
    }
    assert (said["model"], said["prompts"]) == (ASKED["model"], ASKED["prompts"])
    assert said["before_balance"] == {"right": 3, "hallucinated": 5, "refused": 2}
    assert before_balance([target, target]) == {"right": 6, "hallucinated": 10, "refused": 4}


@pytest.mark.parametrize(
    ("balance", "expected"),
    [
        (False, {"r": 1.0, "w": 1.0}),
        (True, {"r": 1.0, "w": 5 / 3}),
        # No right answer is to a question of the other form, so that three wrong ones stand for themselves.
        ("form", {"r": 1.0, "w": 1.0}),
    ],
)
def test_an_example_stands_for_its_class_in_its_shard(answers, balance, expected):
    chosen = analysed(read_table(answers), balance, seed=0).to_pylist()
    assert {(row["id"][0], row["stands_for"]) for row in chosen} == set(expected.items())
    whole = sum(row["stands_for"] for row in chosen)
    assert whole == pytest.approx(6 if balance == "form" else 8)
