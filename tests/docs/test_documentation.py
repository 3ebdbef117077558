"""The pages say what is there: links that lead somewhere, names that exist."""

import json
import re
import subprocess
import tomllib

import polars as pl
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from anchorscope.config_checks import mistakes
from anchorscope.questions.local_rows import read_csv, read_lines
from anchorscope.questions.normalize import LAYOUTS, normalize
from pages import PAGES, anchors, blocks, links
from small_things import ROOT


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file_and_a_heading(page):
    for link in links(page):
        if not link.startswith("http"):
            file, _, anchor = link.partition("#")
            target = page.parent / file if file else page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


def test_the_readme_leads_to_every_page():
    found = {(ROOT / link.partition("#")[0]).resolve() for link in links(ROOT / "README.md")}
    assert found >= set((ROOT / "docs").glob("*.md"))


def test_the_readme_opens_with_the_figure_then_the_two_commands():
    text = (ROOT / "README.md").read_text()
    assert text.index("docs/gallery/family.svg") < text.index("make run") < text.index("make test") < text.index("## ")


def test_the_readme_has_at_most_900_words():
    assert len((ROOT / "README.md").read_text().split()) <= 900


def test_make_runs_what_the_readme_says():
    last_of = {
        "run": "snakemake --cores all",
        "test": "-m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder",
        "test-all": "-m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder --all",
        "test-machines": "tests/as_other_machines.py",
    }
    for target, last in last_of.items():
        done = subprocess.run(
            ["make", "--no-print-directory", "--dry-run", "--always-make", target],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        lines = done.stdout.strip().splitlines()
        assert any(line.rstrip().endswith(last) for line in lines)
        assert any(".venv/bin/python -m pip install" in line and line.endswith("<requirements.lock") for line in lines)


def test_the_readmes_model_and_dataset_can_be_run(tmp_path, monkeypatch):
    (block,) = blocks(ROOT / "README.md", "yaml")
    added = yaml.safe_load(block)
    (model,), (dataset,) = added["models"].values(), added["datasets"].values()
    config = yaml.safe_load((ROOT / "config.yaml").read_text())
    for kind in ("models", "datasets"):
        config[kind] |= added[kind]
    model["path"] = "model"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text("{}")
    (line,) = re.findall(rf"A line of `{dataset['path']}` is `([^`]+)`", (ROOT / "README.md").read_text())
    (tmp_path / dataset["path"]).write_text(f"{line}\n")
    assert mistakes(config, yaml.safe_load((ROOT / "workflow/schemas/config.schema.yaml").read_text())) == []
    table, counts = normalize(pl.from_arrow(read_lines(dataset["path"])), dataset["layout"], 0, "README.md")
    assert (table["gold"].to_list(), counts) == ([json.loads(line)["answers"]], {"kept": 1})


def test_the_formats_page_names_every_layouts_columns():
    text = (ROOT / "docs/formats.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]*)\| [^|]+ \| (?:yes|no) \|$", text, re.M)
    named = {layout: tuple(tuple(re.findall(r"`(\w+)`", cell)) for cell in cells) for layout, *cells in rows}
    assert named == {name: (layout.columns, layout.optional) for name, layout in LAYOUTS.items()}


def test_the_formats_pages_csv_is_read(tmp_path):
    (block,) = blocks(ROOT / "docs/formats.md", "text")
    (tmp_path / "mine.csv").write_text(block)
    table, _ = normalize(pl.from_arrow(read_csv(tmp_path / "mine.csv")), "own", 0, "mine.csv")
    assert table.select("gold", "subject").to_dicts() == [{"gold": ["Jane Austen", "Austen"], "subject": "Emma"}]


def test_the_lock_is_plain_names_and_versions_within_the_ranges():
    lines = (ROOT / "requirements.lock").read_text().split()
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9A-Za-z.]*", line) for line in lines)
    pins = {canonicalize_name(line.split("==")[0]): line.split("==")[1] for line in lines}
    assert pins["torch"] == "2.13.0"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    cluster = dict(line.split("==") for line in (ROOT / "requirements-cluster.lock").read_text().split())
    wanted = [
        *project["dependencies"],
        *(name for extra in ("default-model", "test", "cluster") for name in extras[extra]),
    ]
    for requirement in map(Requirement, wanted):
        assert requirement.specifier.contains((pins | cluster)[canonicalize_name(requirement.name)]), requirement


def test_the_citation_names_the_version_and_the_paper():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (citation["version"], citation["license"]) == (project["version"], project["license"])
    (paper,) = citation["references"]
    said = " ".join((ROOT / "README.md").read_text().split())
    for author in paper["authors"]:
        assert f"{author['family-names']}, {author['given-names']}" in said
    assert paper["identifiers"][0]["value"].replace(":", " ") in said
