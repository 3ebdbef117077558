"""Whatever a question file holds: its rows come out as a plain reader sees them, or one sentence says why not."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume
from hypothesis import strategies as st

from anchorscope.files.frames import read_frame, write_frame
from anchorscope.files.identity import sha256_of_file
from anchorscope.questions.local_rows import copy_rows
from anchorscope.questions.normalize import LAYOUTS, normalize
from anchorscope.text.content_words import exact_question_spans
from anchorscope.text.normal_words import normal_words
from mutations import changed, sentence_of, spoilt, sweep, write
from small_things import ROOT

BUNDLED = ROOT / "workflow" / "resources" / "questions"
SUFFIXES = (".jsonl", ".parquet")
ROWS = {
    layout: [
        json.loads(line) for line in (BUNDLED / f"{layout}-mini.jsonl").read_text(encoding="utf-8").splitlines()[:5]
    ]
    for layout in LAYOUTS
    if layout != "own"  # nobody published it
}
ROWS["own"] = [
    {"question": row["question"], "answers": json.loads(row["possible_answers"])}
    | {"subject": row["subj"], "property": row.get("prop"), "popularity": row["s_pop"]}
    for row in ROWS["popqa"]
]
SUBJECT = {"popqa": "subj", "own": "subject"}
POPULARITY = {"popqa": "s_pop", "own": "popularity"}


def as_bytes(rows: list, suffix: str, folder: Path) -> bytes:
    """The rows as a file of that format; not every row fits in one."""
    if suffix == ".jsonl":
        return "".join(json.dumps(row) + "\n" for row in rows).encode()
    try:
        pq.write_table(pa.Table.from_pylist(rows), folder / "made.parquet")
    except (pa.ArrowException, AttributeError, TypeError, ValueError, OverflowError):
        assume(False)
    return (folder / "made.parquet").read_bytes()


def plain_rows(file: Path) -> list[dict]:
    """The rows as the plainest reader of the format sees them."""
    if file.suffix == ".parquet":
        return pq.ParquetFile(file).read().to_pylist()
    lines = file.read_bytes().decode("utf-8-sig").split("\n")
    return [json.loads(line) for line in lines if line.strip()]


def plain_text(value: str | None) -> str:
    text = " ".join((value or "").split())
    if len(text) > 1 and text.startswith('"') and text.endswith('"') and '""' in text:
        text = text[1:-1].replace('""', '"')
    return text.replace('""', '"').strip()


def plain_gold(row: dict, layout: str) -> list[str | None]:
    if layout in ("popqa", "own"):
        found = row.get("possible_answers" if layout == "popqa" else "answers")
        return (json.loads(found) if found else []) if isinstance(found, str) else found or []
    found = row.get("answer")
    if layout == "triviaqa":
        return [(found or {}).get("value"), *((found or {}).get("aliases") or [])]
    return [found] if layout == "hotpotqa" else found or []


def expected(rows: list[dict], layout: str) -> dict[str, tuple]:
    """By question: its accepted answers, subject and popularity, row by row and without any library."""
    kept: dict[str, tuple] = {}
    for row in rows:
        text, subject = plain_text(row.get("question")), plain_text(row.get(SUBJECT.get(layout)))
        gold = [plain_text(alias) for alias in plain_gold(row, layout)]
        gold = list(dict.fromkeys(alias for alias in gold if normal_words(alias)))
        if not text or not gold or not exact_question_spans(text, subject or None):
            continue
        name = text.casefold()
        if name in kept:
            first, before, *rest = kept[name]
            kept[name] = (first, list(dict.fromkeys(before + gold)), *rest)
        else:
            kept[name] = (text, gold, subject or None, row.get(POPULARITY.get(layout)))
    return kept


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("cases", [8, pytest.param(300, marks=pytest.mark.slow)])
def test_any_file_is_read_rightly_or_refused_in_a_sentence(cases, layout, suffix, tmp_path):
    good = as_bytes(ROWS[layout], suffix, tmp_path)
    rows = changed(ROWS[layout]).map(lambda rows: as_bytes(rows, suffix, tmp_path))

    def judge(data: bytes) -> bool:
        file, raw = write(tmp_path / f"mine{suffix}", data), tmp_path / "raw.parquet"
        try:
            copy_rows(file, raw, {}, sha256_of_file(file))
            table, counts = normalize(read_frame(raw), layout, 0, str(file))
        except Exception as error:
            sentence_of(error, (str(file),))
            return False
        rows = plain_rows(file)
        found = {row["question"].casefold(): row for row in table.to_dicts()}
        wanted = expected(rows, layout)
        assert found.keys() == wanted.keys()
        for name, row in found.items():
            assert (row["question"], row["gold"], row["subject"], row["popularity"]) == wanted[name]
        assert sum(counts.values()) == len(rows)
        assert written(table, tmp_path) == written(normalize(read_frame(raw), layout, 0, str(file))[0], tmp_path)
        return True

    found = sweep(cases, st.one_of(rows, spoilt(good)), judge)
    assert min(found["accepted"], found["refused"]) > cases / 20


def written(table, folder: Path) -> bytes:
    write_frame(folder / "questions.parquet", table, {})
    return (folder / "questions.parquet").read_bytes()
