"""The tables of all models and datasets hold what was probed, and name what was not."""

import polars as pl
import pytest

from anchorscope.extract.axes import Headline
from anchorscope.files.frames import write_frame
from anchorscope.files.sealed_parquet import provenance
from anchorscope.summarise.tables import TABLES, gather, read_coverage

PAIRS = [["m", "one"], ["m", "two"]]
MANIFEST = {"weights": "trained"}
PATH = {"name": "packed", "reason": "", "attention": "sdpa", "without_attention": [], "moved": None}


def write_estimates(folder, not_probed: dict[str, str]) -> dict[str, list[str]]:
    """One file per table and dataset."""
    files: dict[str, list[str]] = {"layers": []}
    for _, dataset in PAIRS:
        made = {"model": MANIFEST, "path": PATH} | (
            {"not_probed": not_probed[dataset]} if dataset in not_probed else {}
        )
        table = pl.DataFrame({"component": ["resid"], "layer": [0]})
        for name in TABLES:
            path = str(folder / f"{name}.{dataset}.parquet")
            write_frame(path, table, provenance(**made))
            files.setdefault(name, []).append(path)
    return files


def test_what_was_not_probed_is_left_out_of_the_tables_and_named(tmp_path):
    files = write_estimates(tmp_path, {"two": "too few answers"})
    coverage = read_coverage(PAIRS, files["summary"])
    assert coverage.probed() == [("m", "one")]
    assert coverage.metadata() == {
        "models": {"m": MANIFEST},
        "paths": {"m": PATH},
        "not_probed": [["m", "two", "too few answers"]],
    }
    tables = gather(coverage, files=files, sources={"one": "bundled", "two": "hub"})
    (row,) = tables["kinds"].to_dicts()
    assert (row["model"], row["weights"], row["dataset"], row["source"]) == ("m", "trained", "one", "bundled")


def test_of_the_ways_in_which_a_model_ran_the_slow_and_the_coarse_one_are_told(tmp_path):
    def told(*paths):
        files = []
        for number, path in enumerate(paths):
            files.append(str(tmp_path / f"{number}.parquet"))
            write_frame(files[-1], pl.DataFrame({"layer": [0]}), provenance(model=MANIFEST, path=path))
        return read_coverage([["m", str(number)] for number in range(len(paths))], files).paths["m"]

    plain, coarse, fine = PATH | {"name": "plain"}, PATH | {"moved": 0.2}, PATH | {"moved": 0.01}
    assert told(fine, coarse, fine) == coarse
    assert told(coarse, plain, coarse) == plain


def test_a_run_in_which_nothing_was_probed_says_why(tmp_path):
    files = write_estimates(tmp_path, {"one": "too few answers", "two": "one class only"})
    with pytest.raises(ValueError, match=r"Nothing could be probed\. too few answers"):
        read_coverage(PAIRS, files["summary"])


def test_the_headline_is_one_component_at_one_position():
    table = pl.DataFrame({"component": ["resid", "resid", "mlp"], "position": ["final", "answer_last", "final"]})
    assert table.filter(**vars(Headline("resid", "final"))).rows() == [("resid", "final")]
