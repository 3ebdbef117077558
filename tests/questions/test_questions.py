"""Raw rows of every layout become questions, and the bundled sets are what they say they are."""

import csv
import json
from collections import Counter
from functools import partial
from pathlib import Path

import polars as pl
import pytest

from anchorscope.files.frames import read_frame
from anchorscope.files.identity import sha256_of_file
from anchorscope.questions.local_rows import copy_rows, name_row, read_csv, read_lines
from anchorscope.questions.normalize import LAYOUTS, normalize
from anchorscope.text.normal_words import normal_words
from small_things import ROOT

BUNDLED = ROOT / "workflow" / "resources" / "questions"
BUNDLED_LAYOUTS = [layout for layout in LAYOUTS if layout != "own"]


def bundled(layout: str) -> pl.DataFrame:
    return pl.from_arrow(read_lines(BUNDLED / f"{layout}-mini.jsonl"))


def words(text: str) -> str:
    return " ".join(word for word, _ in normal_words(text))


def exact_words(row: dict) -> list[str]:
    return [row["question"][span["start"] : span["end"]] for span in row["spans"]]


def popqa_row(**changes) -> dict:
    row = {"question": "Who is the author of The Road?", "subj": "The Road", "s_pop": 5, "possible_answers": '["X"]'}
    return row | changes


def test_popqa_takes_subject_popularity_and_aliases_from_its_own_fields():
    table, counts = normalize(
        pl.DataFrame([popqa_row(possible_answers='["Cormac McCarthy", "McCarthy"]')]), "popqa", 0, "f"
    )
    (row,) = table.to_dicts()
    assert row["gold"] == ["Cormac McCarthy", "McCarthy"]
    assert (row["subject"], row["popularity"]) == ("The Road", 5)
    assert exact_words(row) == ["author", "The Road"]
    assert counts == {"kept": 1}


def test_triviaqa_takes_value_and_aliases_and_mends_doubled_quotes():
    raw = [
        {"question": '"Who wrote ""Emma""?"', "answer": {"value": "Jane Austen", "aliases": ["Austen", "Jane Austen"]}}
    ]
    (row,) = normalize(pl.DataFrame(raw), "triviaqa", 0, "f")[0].to_dicts()
    assert row["question"] == 'Who wrote "Emma"?'
    assert row["gold"] == ["Jane Austen", "Austen"]
    assert row["subject"] is None


def test_hotpotqa_and_nq_take_their_answers():
    hotpot = pl.DataFrame([{"question": "Are Oslo and Bergen both in Norway?", "answer": "yes", "type": "comparison"}])
    assert normalize(hotpot, "hotpotqa", 0, "f")[0]["gold"].to_list() == [["yes"]]
    nq = pl.DataFrame([{"question": "who wrote emma", "answer": ["Jane Austen", "Austen"]}])
    assert normalize(nq, "nq", 0, "f")[0]["gold"].to_list() == [["Jane Austen", "Austen"]]


def test_what_is_dropped_is_counted_by_reason():
    rows = [
        popqa_row(),
        popqa_row(question="who is the AUTHOR of the road?"),  # the same question again
        popqa_row(question="  "),
        popqa_row(question="Who is it?", subj=None),
        popqa_row(question="Who wrote it all?", possible_answers="[]"),
        popqa_row(question="Who wrote nothing?", possible_answers=None),
    ]
    table, counts = normalize(pl.DataFrame(rows), "popqa", 0, "f")
    assert table.height == 1
    assert counts == {
        "kept": 1,
        "duplicate question": 1,
        "no question": 1,
        "no exact question words": 1,
        "no gold answer": 2,
    }


def test_a_question_that_occurs_twice_is_kept_once_and_accepts_the_answers_of_both():
    rows = [
        popqa_row(possible_answers='["Cormac McCarthy"]'),
        popqa_row(question="Who is the author of the road?", possible_answers='["Jack London", "Cormac McCarthy"]'),
    ]
    table, counts = normalize(pl.DataFrame(rows), "popqa", 0, "f")
    assert table["gold"].to_list() == [["Cormac McCarthy", "Jack London"]]
    assert counts == {"kept": 1, "duplicate question": 1}


def test_an_unknown_layout_names_the_columns_wanted_and_found():
    with pytest.raises(
        ValueError, match=r"data\.parquet .* missing possible_answers, subj, s_pop; it has question, answer"
    ):
        normalize(pl.DataFrame([{"question": "q", "answer": "a"}]), "popqa", 0, "data.parquet")


def test_a_column_of_the_wrong_kind_is_named():
    with pytest.raises(ValueError, match=r"Row 1 of f cannot be read as layout 'triviaqa' .* answer String"):
        normalize(pl.DataFrame([{"question": "who wrote emma", "answer": "Jane Austen"}]), "triviaqa", 0, "f")


def test_popqa_takes_a_list_as_well_as_json_text():
    rows = [popqa_row(possible_answers=["Cormac McCarthy", None, "McCarthy"])]
    assert normalize(pl.DataFrame(rows), "popqa", 0, "f")[0]["gold"].to_list() == [["Cormac McCarthy", "McCarthy"]]


@pytest.mark.parametrize(
    ("layout", "row", "said"),
    [
        (
            "popqa",
            popqa_row(possible_answers='{"value": "X"}'),
            """possible_answers is '{"value": "X"}', not a list""",
        ),
        ("popqa", popqa_row(possible_answers='"xyz"'), """possible_answers is '"xyz"', not a list"""),
        ("popqa", popqa_row(possible_answers="[1945]"), "an entry of possible_answers is 1945, not a text"),
        ("popqa", popqa_row(possible_answers="[["), r"possible_answers is '\[\[', not a list of texts"),
        (
            "triviaqa",
            {"question": "q", "answer": {"value": "X", "aliases": "xyz"}},
            "answer.aliases is 'xyz', not a list",
        ),
        (
            "triviaqa",
            {"question": "q", "answer": {"value": ["X"], "aliases": []}},
            r"answer.value is \['X'\], not a text",
        ),
        ("hotpotqa", {"question": "q", "answer": ["yes"]}, r"answer is \['yes'\], not a text"),
        ("nq", {"question": "q", "answer": "xyz"}, "answer is 'xyz', not a list of texts"),
        ("own", {"question": "q", "answers": "Paris"}, r"answers is 'Paris', not a list of texts such as \["),
        ("own", {"question": "q", "answers": ["x"], "subject": 5}, "its subject is 5, not a text"),
        ("own", {"question": "q", "answers": ["x"], "property": ["y"]}, r"its property is \['y'\], not a text"),
        ("own", {"question": 5, "answers": ["x"]}, "its question is 5, not a text"),
    ],
)
def test_gold_answers_of_another_kind_are_refused_with_their_row(layout, row, said):
    with pytest.raises(ValueError, match=rf"^Row 1 of f cannot be read as layout '{layout}' \({said}"):
        normalize(pl.DataFrame([row]), layout, 0, "f")


OWN = [
    {"question": "who wrote The Lord of the Rings", "answers": ["Tolkien", "J. R. R. Tolkien"]},
    {"question": "In what country was Ada Lovelace born?", "answers": ["England"], "subject": "Ada Lovelace"}
    | {"property": "country of birth", "popularity": 4},
]


def write_own(path: Path, rows: list[dict]) -> Path:
    """Rows of the layout `own` in the format of the file's name."""
    if path.suffix == ".csv":
        names = list(dict.fromkeys(name for row in rows for name in row))
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(row | {"answers": json.dumps(row["answers"])} for row in rows)
    elif path.suffix == ".jsonl":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    else:
        pl.DataFrame(rows).write_parquet(path)
    return path


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_own_questions_read_the_same_in_every_format(suffix, tmp_path):
    file = write_own(tmp_path / f"mine{suffix}", OWN)
    copy_rows(file, tmp_path / "raw.parquet", {}, sha256_of_file(file))
    table, counts = normalize(read_frame(tmp_path / "raw.parquet"), "own", 0, "f")
    rings, ada = table.sort("question", descending=True).to_dicts()
    assert counts == {"kept": 2}
    assert (rings["gold"], rings["subject"], rings["property"], rings["popularity"]) == (
        ["Tolkien", "J. R. R. Tolkien"],
        None,
        None,
        None,
    )
    assert (ada["gold"], ada["subject"], ada["property"], ada["popularity"]) == (
        ["England"],
        "Ada Lovelace",
        "country of birth",
        4,
    )
    assert exact_words(ada) == ["country", "Ada Lovelace", "born"]


def test_own_questions_need_no_more_than_question_and_answers():
    rows = [{"question": "who wrote emma", "answers": ["Jane Austen"]}]
    own = normalize(pl.DataFrame(rows), "own", 0, "f")[0]
    nq = normalize(pl.DataFrame(rows).rename({"answers": "answer"}), "nq", 0, "f")[0]
    assert own.equals(nq)


def test_the_subject_of_own_questions_is_content_as_a_whole_as_in_popqa():
    row = {"question": "who wrote the catcher in the rye", "subject": "The Catcher in the Rye"}
    own = normalize(pl.DataFrame([row | {"answers": ["x"]}]), "own", 0, "f")[0]
    popqa = popqa_row(question=row["question"], subj=row["subject"])
    assert own["spans"].to_list() == normalize(pl.DataFrame([popqa]), "popqa", 0, "f")[0]["spans"].to_list()
    assert exact_words(own.row(0, named=True)) == ["wrote", "the catcher in the rye"]


def test_the_property_asked_about_is_kept_where_the_dataset_names_it():
    raw = bundled("popqa")
    kept = normalize(raw, "popqa", 0, "f")[0]
    assert dict(kept.select("question", "property").iter_rows()) == dict(raw.select("question", "prop").iter_rows())
    assert normalize(pl.DataFrame([popqa_row()]), "popqa", 0, "f")[0]["property"].to_list() == [None]
    nq = normalize(bundled("nq"), "nq", 0, "f")[0]
    assert nq["property"].null_count() == len(nq)


@pytest.mark.parametrize(
    ("layout", "header", "cells"),
    [
        ("popqa", ["question", "subj", "prop", "s_pop", "possible_answers"], ["who wrote emma", "", "", "", '["X"]']),
        ("hotpotqa", ["question", "answer"], ["who wrote emma", "X"]),
        ("nq", ["question", "answer"], ["who wrote emma", '["X"]']),
    ],
)
def test_csv_holds_the_other_layouts_but_triviaqas(layout, header, cells, tmp_path):
    with open(tmp_path / "mine.csv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, cells])
    assert normalize(pl.from_arrow(read_csv(tmp_path / "mine.csv")), layout, 0, "f")[0]["gold"].to_list() == [["X"]]


HEADER = b"question,answers\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", r"mine\.csv is empty, or its first line does not name the columns\.$"),
        (HEADER, r"mine\.csv has no rows\.$"),
        (b"question,question\na,b\n", r"^The first line of .*mine\.csv names the column 'question' twice\.$"),
        (HEADER + b'who,"[""x""]"\nwho,x,y\n', r"^Line 3 of .*mine\.csv has 3 cells, where its first line has 2\.$"),
        (HEADER + b'"two\nlines",x\n"open', r"^Line 4 of .*mine\.csv cannot be read as CSV: unexpected end of data"),
        (HEADER + b"\xff,x\n", r"mine\.csv is not a UTF-8 text: "),
    ],
    ids=["empty", "header", "twice", "cells", "quote", "not UTF-8"],
)
def test_a_line_of_csv_that_cannot_be_read_is_named(content, said, tmp_path):
    (tmp_path / "mine.csv").write_bytes(content)
    with pytest.raises(ValueError, match=said):
        read_csv(tmp_path / "mine.csv")


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("mine.jsonl", b'\xef\xbb\xbf{"question": "a", "answers": "[]"}\n\n{"question": "b", "answers": "y"}\n', 3),
        ("mine.csv", b'question,answers\n"a\nb","[""x""]"\n\nc,y\n', 5),
    ],
)
def test_a_row_that_cannot_be_read_is_named_by_its_line(name, content, line, tmp_path):
    file = tmp_path / name
    file.write_bytes(content)
    raw = pl.from_arrow(read_csv(file) if file.suffix == ".csv" else read_lines(file))
    with pytest.raises(ValueError, match=rf"^Line {line} of .*{name} cannot be read as layout 'own' \(answers is 'y',"):
        normalize(raw, "own", 0, str(file), name_row=partial(name_row, file))
    file.unlink()
    assert name_row(file, 2) == f"Row 2 of {file}"


def test_a_line_that_does_not_fit_those_above_is_named(tmp_path):
    (tmp_path / "mine.jsonl").write_bytes(b'{"a": ["x"]}\n\n' * 20 + b'{"a": {"b": 1}}\n{"a": ["x"]}\n')
    with pytest.raises(ValueError, match=r"^Line 41 of .*mine\.jsonl does not fit in one table with those above: "):
        read_lines(tmp_path / "mine.jsonl")


def test_the_order_is_seeded_and_growing_a_dataset_keeps_it():
    rows = [{"question": f"who wrote book {number}", "answer": ["x"]} for number in range(60)]
    table = normalize(pl.DataFrame(rows), "nq", 0, "f")[0]
    assert table["question"].to_list() != [row["question"] for row in rows]
    assert normalize(pl.DataFrame(rows[::-1]), "nq", 0, "f")[0].equals(table)
    assert not normalize(pl.DataFrame(rows), "nq", 1, "f")[0].equals(table)
    fewer = normalize(pl.DataFrame(rows[:40]), "nq", 0, "f")[0]
    kept = set(fewer["question"])
    assert [text for text in table["question"] if text in kept] == fewer["question"].to_list()


@pytest.mark.parametrize("layout", BUNDLED_LAYOUTS)
def test_a_file_reads_the_same_as_json_lines_and_as_parquet(layout, tmp_path):
    lines = bundled(layout)
    lines.write_parquet(tmp_path / "same.parquet")
    copy_rows(tmp_path / "same.parquet", tmp_path / "raw.parquet", {}, sha256_of_file(tmp_path / "same.parquet"))
    assert normalize(lines, layout, 0, "f")[0].equals(
        normalize(read_frame(tmp_path / "raw.parquet"), layout, 0, "f")[0]
    )


GOOD = b'{"question": "who wrote emma", "answer": ["Jane Austen"]}\n'


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", r"mine\.jsonl is empty\.$"),
        (b"\n \n", r"mine\.jsonl is empty\.$"),
        (GOOD + b'{"question": \n', r"^Line 2 of .*mine\.jsonl cannot be read as JSON: Expecting value"),
        (GOOD + b'[{"question": "q"}]\n', r"^Line 2 of .* is not a JSON object; each line must be one, like "),
        (GOOD + b"5\n", r"^Line 2 of .* is not a JSON object"),
        (GOOD + b'{"question": "\xff"}\n', r"^Line 2 of .* cannot be read as JSON: 'utf-8' codec can't decode"),
        (GOOD + b'{"question": "\\ud800"}\n', r"^Line 2 of .* cannot be read as JSON: .*surrogates not allowed"),
        (GOOD + b"[" * 100_000, r"^Line 2 of .* cannot be read as JSON: "),
        (GOOD + b'{"question": "q", "question": "p"}', r"^Line 2 of .* as JSON: the key 'question' stands twice\.$"),
        (GOOD + b'{"a\\u0000": 1}', r"^Line 2 of .* as JSON: a key holds a NUL, which no table can\.$"),
        (
            GOOD * 3 + b'{"question": 5}',
            r"^Line 4 of .* does not fit in one table with those above: its 'question' is of another kind \(",
        ),
        (b'{"s_pop": 1000000000000000000000000000000}', r"^Line 1 of .* its 's_pop' is of another kind "),
    ],
    ids="empty,blank,broken,array,number,not UTF-8,surrogate,nested,twice,NUL,mixed,large".split(","),
)
def test_a_line_that_cannot_be_read_is_named(content, said, tmp_path):
    (tmp_path / "mine.jsonl").write_bytes(content)
    with pytest.raises(ValueError, match=said):
        read_lines(tmp_path / "mine.jsonl")


def test_a_byte_order_mark_and_blank_lines_change_nothing(tmp_path):
    (tmp_path / "plain.jsonl").write_bytes(GOOD * 2)
    (tmp_path / "marked.jsonl").write_bytes(b"\xef\xbb\xbf" + GOOD + b"\r\n" + GOOD)
    assert read_lines(tmp_path / "marked.jsonl").equals(read_lines(tmp_path / "plain.jsonl"))


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + bytes(100) + b"PAR1"])
def test_a_broken_parquet_file_is_named(content, tmp_path):
    file = tmp_path / "mine.parquet"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"mine\.parquet cannot be read as Parquet: [^\n]*$"):
        copy_rows(file, tmp_path / "raw.parquet", {}, sha256_of_file(file))


def test_a_question_too_long_to_ask_is_refused_with_its_row():
    rows = [popqa_row(), popqa_row(question="Who " + "is " * 40_000)]
    with pytest.raises(ValueError, match=r"^Row 2 of f .*its question has 120003 characters; at most 4000 "):
        normalize(pl.DataFrame(rows), "popqa", 0, "f")


@pytest.mark.parametrize("popularity", [1e30, "many", True])
def test_a_popularity_that_is_no_whole_number_is_refused_with_its_row(popularity):
    with pytest.raises(ValueError, match=r"^Row 1 of f .*its popularity is .*, not a whole number"):
        normalize(pl.DataFrame([popqa_row(s_pop=popularity)]), "popqa", 0, "f")


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_file_that_changed_after_the_run_was_planned_is_refused(suffix, tmp_path):
    file, rows = tmp_path / f"mine{suffix}", pl.DataFrame([{"question": "who wrote emma", "answer": "Jane Austen"}])
    write = rows.write_ndjson if suffix == ".jsonl" else rows.write_parquet
    write(file)
    planned = sha256_of_file(file)
    copy_rows(file, tmp_path / "raw.parquet", {}, planned)
    file.write_bytes(file.read_bytes() + b" ")
    with pytest.raises(ValueError, match=r"mine\.\w+ changed while the run was going on; start the run again\.$"):
        copy_rows(file, tmp_path / "again.parquet", {}, planned)
    assert not (tmp_path / "again.parquet").exists()


@pytest.mark.parametrize("layout", BUNDLED_LAYOUTS)
def test_a_bundled_set_has_400_usable_questions_none_repeated_none_giving_its_answer_away(layout):
    raw = bundled(layout)
    table, counts = normalize(raw, layout, 0, layout)
    assert counts == {"kept": raw.height}
    assert raw.height >= 400
    assert len({words(text) for text in table["question"]}) == raw.height
    for row in table.iter_rows(named=True):
        assert all(alias == alias.strip() and alias for alias in row["gold"])
        chosen = layout == "hotpotqa" and (" or " in row["question"] or row["gold"][0] in ("yes", "no"))
        if not chosen:
            given = f" {words(row['question'])} "
            assert not any(f" {words(alias)} " in given for alias in row["gold"] if words(alias)), row


@pytest.mark.parametrize("layout", BUNDLED_LAYOUTS)
def test_no_demonstration_of_a_prompt_stands_in_a_bundled_set(layout):
    prompts = json.loads((ROOT / "workflow" / "resources" / "prompts.json").read_text(encoding="utf-8"))["few_shot"]
    shown = {words(shot["question"]) for shots in prompts.values() if isinstance(shots, list) for shot in shots}
    asked = {words(text) for text in bundled(layout)["question"]}
    assert not shown & asked


def test_the_popqa_like_set_has_templates_over_many_properties():
    raw = bundled("popqa")
    assert all(row["subj"] in row["question"] for row in raw.iter_rows(named=True))
    sizes = Counter(raw["prop"])
    assert len(sizes) >= 8
    assert min(sizes.values()) >= 20
    for prop in sizes:
        rows = raw.filter(pl.col("prop") == prop)
        assert len({row["question"].replace(row["subj"], "{}") for row in rows.iter_rows(named=True)}) == 1
    assert raw["s_pop"].n_unique() >= 4
    assert all(row["obj"] in json.loads(row["possible_answers"]) for row in raw.iter_rows(named=True))


def test_the_hotpotqa_like_set_has_bridges_comparisons_and_balanced_yes_and_no():
    raw = bundled("hotpotqa")
    kinds = Counter(raw["type"])
    assert min(kinds["bridge"], kinds["comparison"]) >= 100
    answers = Counter(raw["answer"])
    assert answers["yes"] == answers["no"] >= 20


def test_the_nq_like_set_is_lower_case_queries():
    raw = bundled("nq")
    assert all(text == text.lower() and "?" not in text for text in raw["question"])
