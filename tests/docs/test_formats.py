"""docs/formats.md names every file of a run and every column of its tables, and nothing that is not there."""

import re
from itertools import product
from pathlib import Path

import polars as pl
import pytest
import torch

from anchorscope.detect import gates, scoring
from anchorscope.draw.kinds import DETECTION_KINDS
from anchorscope.experiments import NAMES
from anchorscope.experiments.tell_groups import tell_groups
from detection_scores import make_detection
from pages import anchor_of
from planted_experiments import COUNT, LAYERS, World, patching, saliency
from small_things import ROOT

PAGE = ROOT / "docs/formats.md"
PARTS = re.split(r"^## +(.*)$", PAGE.read_text(), flags=re.M)[1:]
SECTIONS = dict(zip(PARTS[::2], PARTS[1::2], strict=True))
# What a section begins with whose tables this run does not have; tests of experiments and detection look at them.
DETECTION = tuple(f"`{name}." for name in ("detection", "transfer", "reliability", "coverage", "pathways"))
ELSEWHERE = ("`experiments/", "`{patching,", "`reweighted/", "`asked/", "`samples/", "`detect/", *DETECTION)
BEGINNING = "What every gathered table begins with"


def expanded(text: str) -> list[str]:
    """`{a,b}_{1,2}` as the shell reads it; `{name}` stays."""
    parts = re.split(r"\{([^{}]*,[^{}]*)\}", text)
    return ["".join(some) for some in product(*(p.split(",") if i % 2 else [p] for i, p in enumerate(parts)))]


def quoted(text: str) -> list[str]:
    return [name for code in re.findall(r"`([^`]+)`", text) for name in expanded(code)]


def columns(heading: str) -> set[str]:
    """The columns that a section's tables name, and those of the sections that they lead to."""
    found = set()
    for table in re.findall(r"^\| column \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", SECTIONS[heading], re.M):
        for row in table.splitlines():
            cell = row.split("|")[1]
            found.update(quoted(cell))
            for anchor in re.findall(r"\(#([^)]+)\)", cell):
                (other,) = (name for name in SECTIONS if anchor_of(name) == anchor)
                found |= columns(other)
    return found


def files(heading: str, results: Path) -> list[Path]:
    """The tables of a run that a heading names. A name in braces has no dot, which divides the parts of a file name."""
    patterns = [re.sub(r"\\\{\w+\\\}", r"[^./]+", re.escape(name)) for name in quoted(heading)]
    tables = [path for path in results.rglob("*") if path.suffix in (".parquet", ".csv")]
    return [
        path for pattern in patterns for path in tables if re.fullmatch(pattern, path.relative_to(results).as_posix())
    ]


def columns_of(path: Path) -> set[str]:
    return set(pl.read_csv(path).columns if path.suffix == ".csv" else pl.read_parquet_schema(path))


def agree(named: set[str], found: set[str]) -> bool:
    """Whether both have the same names; `{layer}` stands for any number, another name in braces for any word."""
    numbered = (re.escape(name).replace(re.escape("{layer}"), r"\d+") for name in named)
    patterns = {re.sub(r"\\{\w+\\}", r"\\w+", name) for name in numbered}
    unnamed = [name for name in found if not any(re.fullmatch(pattern, name) for pattern in patterns)]
    missing = [pattern for pattern in patterns if not any(re.fullmatch(pattern, name) for name in found)]
    return (unnamed, missing) == ([], [])


def test_every_table_of_a_run_has_one_section(experimented):
    results = experimented / "results"
    named = [path for heading in SECTIONS for path in files(heading, results)]
    there = [path for path in results.rglob("*") if path.suffix in (".parquet", ".csv")]
    assert sorted(named) == sorted(there)


MEASURED = [name for name in SECTIONS if columns(name) and name != BEGINNING and not name.startswith(ELSEWHERE)]


@pytest.mark.parametrize("heading", MEASURED)
def test_a_section_names_the_columns_of_its_tables_and_no_others(heading, experimented):
    found = files(heading, experimented / "results")
    assert found
    for path in found:
        named, there = columns(heading), columns_of(path)
        assert agree(named, there), f"{path}: the page has {sorted(named)}, the file {sorted(there)[:50]}"


def test_one_models_estimates_are_the_gathered_tables_without_their_beginning(finished):
    results = finished / "results"
    (heading,) = (name for name in SECTIONS if "{summary,series" in name)
    for path in files(heading, results):
        assert columns_of(path) == columns_of(results / path.name) - columns(BEGINNING)


def test_every_section_on_tables_names_columns_but_for_two_that_say_why_not(finished):
    silent = [name for name in SECTIONS if files(name, finished / "results") and not columns(name)]
    assert [name.split("/")[0].strip("`") for name in silent] == ["raw", "estimates"]


def test_the_figures_that_the_page_names_are_drawn(finished):
    (heading,) = (name for name in SECTIONS if name.startswith("`figures/"))
    kinds = set(re.findall(r"^\| `(\w+)` \|", SECTIONS[heading], re.M))
    drawn = {path.stem.removesuffix("_column") for path in (finished / "results/figures/main").iterdir()}
    detection = {kind.name for kind in DETECTION_KINDS}
    assert kinds - drawn == {"words", "windows", *NAMES, *detection}, "one choice of words, no window, nothing more"
    assert drawn <= kinds


def test_the_sections_on_experiments_name_the_columns_of_their_tables():
    (told,) = (name for name in SECTIONS if name.startswith("`experiments/awareness"))
    (estimated,) = (name for name in SECTIONS if ".estimates." in name)
    (gathered,) = (name for name in SECTIONS if name.startswith("`{patching,"))
    world = World(seed=0, two_kinds=True)
    states = (torch.from_numpy(world.random.normal(size=(COUNT, 2))).float() for _ in range(LAYERS))
    assert columns(told) == set(tell_groups(states, world.groups(), seed=0).columns)
    assert columns(estimated) == set(saliency("holds", 0).columns) == {*patching("holds", 0).columns, "sample"}
    assert columns(gathered) == columns(estimated) - {"resampled"} | columns(BEGINNING)


def test_the_sections_on_detection_name_the_columns_of_their_tables(tmp_path):
    tables, _ = make_detection(tmp_path, {"small": "trained"}, ["one"])
    for name, table in tables.items():
        (heading,) = (one for one in SECTIONS if one.startswith(f"`{name}."))
        assert columns(heading) == set(table.columns), name


def test_the_sections_on_methods_of_detection_name_the_columns_of_their_tables():
    for kind, schema in (("gates", gates.SCHEMA), ("scores", scoring.SCORES), ("transfer", scoring.TRANSFER)):
        (heading,) = (name for name in SECTIONS if name.startswith(f"`detect/{kind}/"))
        assert columns(heading) == set(schema)
