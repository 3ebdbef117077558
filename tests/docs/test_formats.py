"""workflow/schemas/tables.yaml describes every table and column of a run, and nothing that is not there."""

import re
from pathlib import Path

import polars as pl
import pytest
import torch

from anchorscope.detect import gates, scoring
from anchorscope.draw.registry import DETECTION_KINDS, FIGURE_KINDS
from anchorscope.experiments import READS
from anchorscope.experiments.tell_groups import tell_groups
from described import DESCRIBED, TABLES, columns, files, names, own_columns
from detection_scores import make_detection
from planted_experiments import COUNT, LAYERS, World, patching, saliency
from small_things import ROOT

PAGE = ROOT / "docs/formats.md"
# What the name of a table begins with that this run does not have; tests of experiments and detection look at them.
DETECTION = tuple(f"{name}." for name in ("detection", "transfer", "reliability", "coverage", "pathways"))
ELSEWHERE = ("unsure/", "experiments/", "{patching,", "reweighted/", "asked/", "samples/", "detect/", *DETECTION)
EXPERIMENTS = "{patching,answer_only,boundary,awareness,saliency}.{parquet,csv}"
WITHOUT_COLUMNS = [name for name in TABLES if not columns(name)]


def columns_of(path: Path) -> set[str]:
    return set(pl.read_csv(path).columns if path.suffix == ".csv" else pl.read_parquet_schema(path))


def agree(named: set[str], found: set[str]) -> bool:
    """Whether both have the same names; `{layer}` stands for any number, another name in braces for any word."""
    numbered = (re.escape(name).replace(re.escape("{layer}"), r"\d+") for name in named)
    patterns = {re.sub(r"\\{\w+\\}", r"\\w+", name) for name in numbered}
    unnamed = [name for name in found if not any(re.fullmatch(pattern, name) for pattern in patterns)]
    missing = [pattern for pattern in patterns if not any(re.fullmatch(pattern, name) for name in found)]
    return (unnamed, missing) == ([], [])


def test_every_table_of_a_run_is_described_once(experimented):
    results = experimented / "results"
    named = [path for table in TABLES for path in files(table, results)]
    there = [path for path in results.rglob("*") if path.suffix in (".parquet", ".csv")]
    assert sorted(named) == sorted(there)


MEASURED = [name for name in TABLES if name not in WITHOUT_COLUMNS and not name.startswith(ELSEWHERE)]


@pytest.mark.parametrize("table", MEASURED)
def test_a_table_has_the_columns_that_are_described_and_no_others(table, experimented):
    found = files(table, experimented / "results")
    assert found
    for path in found:
        named, there = set(columns(table)), columns_of(path)
        assert agree(named, there), f"{path}: described are {sorted(named)}, the file has {sorted(there)[:50]}"


def test_every_column_has_a_type_and_a_meaning_and_is_described_once():
    parts = [DESCRIBED["gathered"], DESCRIBED["common"], *(table["columns"] for table in TABLES.values())]
    assert all(len(said) == 2 and all(said) for part in parts for said in part.values())
    assert all(table["row"] for table in TABLES.values())
    for table in TABLES:
        assert len(columns(table)) == len(set(columns(table))), table
    listed = [name for table in TABLES.values() for name in table.get("common", [])]
    assert set(listed) == set(DESCRIBED["common"]), "each is described, and each is used"


def test_one_models_estimates_are_the_gathered_tables_without_their_beginning(finished):
    results = finished / "results"
    (table,) = (name for name in TABLES if "{summary,series" in name)
    for path in files(table, results):
        assert columns_of(path) == columns_of(results / path.name) - set(names(DESCRIBED["gathered"]))


def test_every_table_names_columns_but_for_two_that_say_why_not():
    assert [name.split("/")[0] for name in WITHOUT_COLUMNS] == ["raw", "estimates"]


def test_the_figures_that_the_page_names_are_drawn(finished):
    (said,) = re.findall(r"Kinds: (.*?) The report", " ".join(PAGE.read_text(encoding="utf-8").split()))
    kinds = set(re.findall(r"`(\w+)`", said))
    drawn = {path.stem.removesuffix("_column") for path in (finished / "results/figures/main").iterdir()}
    detection = {kind.name for kind in DETECTION_KINDS}
    assert kinds == {kind.name for kind in FIGURE_KINDS} | detection
    assert kinds - drawn == {"words", "windows", *READS, *detection}, "one choice of words, no window, nothing more"
    assert drawn <= kinds


def test_the_tables_of_experiments_have_the_columns_that_are_described():
    told = "experiments/awareness/{model}/{dataset}.parquet"
    estimated = "experiments/{experiment}/{model}/{dataset}.estimates.parquet"
    world = World(seed=0, two_kinds=True)
    states = (torch.from_numpy(world.random.normal(size=(COUNT, 2))).float() for _ in range(LAYERS))
    assert set(columns(told)) == set(tell_groups(states, world.groups(), seed=0).columns)
    assert set(columns(estimated)) == set(saliency("holds", 0).columns) == {*patching("holds", 0).columns, "sample"}
    assert set(own_columns(EXPERIMENTS)) == set(columns(estimated)) - {"resampled"}
    assert TABLES[EXPERIMENTS]["gathered"]


def test_the_tables_of_detection_have_the_columns_that_are_described(tmp_path):
    tables, _ = make_detection(tmp_path, {"small": "trained"}, ["one"])
    for name, table in tables.items():
        assert set(columns(f"{name}.{{parquet,csv}}")) == set(table.columns), name


def test_the_tables_of_detection_methods_have_the_columns_that_are_described():
    for name, schema in (
        ("gates/{model}/{dataset}", gates.SCHEMA),
        ("scores/{model}/{dataset}", scoring.SCORES),
        ("transfer/{model}", scoring.TRANSFER),
    ):
        assert set(columns(f"detect/{name}.parquet")) == set(schema)
