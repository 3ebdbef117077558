"""CSV files for people: what they hold, and what a spreadsheet does not make of it."""

import re

import polars as pl

from anchorscope.files.csv_file import as_text
from small_things import ROOT


def test_lists_are_numbers_with_spaces_between_them_in_csv():
    assert as_text(pl.DataFrame({"folds": [[0, 2], []]}))["folds"].to_list() == ["0 2", ""]


def test_a_text_that_a_spreadsheet_would_run_is_only_text_in_csv():
    texts = ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1", "capital", "a=b", None]
    table = as_text(pl.DataFrame({"value": texts, "n": range(-4, 4), "folds": [[-1.5, 2.0]] * 8}))
    assert table["value"].to_list() == [*(f"'{text}" for text in texts[:5]), "capital", "a=b", None]
    assert (table["n"].to_list(), table["folds"][0]) == (list(range(-4, 4)), "-1.5 2.0")


def test_no_other_code_writes_csv_without_this_guard():
    code = [*(ROOT / "workflow").rglob("*.py"), *(ROOT / "scripts").glob("*.py")]
    unguarded = re.compile(r"\.write_csv\(|\.to_csv\(|\bcsv\.writer|\bDictWriter")
    assert [path.name for path in code if unguarded.search(path.read_text(encoding="utf-8"))] == ["csv_file.py"]
