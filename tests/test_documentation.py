"""The pages say what is there: commands that work, links that lead somewhere, names that exist."""

import os
import re
import subprocess
import sys
import tomllib

import polars as pl
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from anchorscope.rules import role_columns
from conftest import ROOT
from small_run import SNAKEMAKE

PAGES = [ROOT / "README.md", ROOT / "results/README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page, kind: str) -> list[str]:
    found = re.findall(r"^ *```(\w*)\n(.*?)^ *```$", page.read_text(), re.M | re.S)
    return [text for name, text in found if name == kind]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file(page):
    links = re.findall(r"\]\(([^)#]+)", page.read_text())
    for link in links:
        assert link.startswith("http") or (page.parent / link).exists(), link


def test_the_readme_opens_with_the_figure_then_the_two_commands():
    text = (ROOT / "README.md").read_text()
    assert text.index("docs/images/flip.png") < text.index("make run") < text.index("make test") < text.index("## ")


def test_make_runs_what_the_readme_says():
    last_of = {
        "run": "snakemake --cores all",
        "test": "-m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder",
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
        assert lines[-1].endswith(last)
        assert any("requirements.lock | .venv/bin/python -m pip install" in line for line in lines)


def test_the_command_for_the_published_models_builds_its_whole_plan(tmp_path):
    (command,) = (block for block in blocks(ROOT / "README.md", "") if "--cores all --configfile" in block)
    arguments = command.split()
    assert arguments[0] == "snakemake"
    done = subprocess.run(
        [sys.executable, "-m", *arguments, "--dry-run", "--directory", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    for job in ("fetch_model=14", "fetch_questions=4", "answer=56", "extract=56", "probe=56", "draw=7"):
        name, count = job.split("=")
        assert re.search(rf"^{name} +{count}$", done.stdout + done.stderr, re.M), job


def test_every_snakemake_command_of_the_pages_plans_a_run(plugins):
    """Profiles, config files and targets are there and fit together; what they submit is tested on a real Slurm."""
    lines = [line.strip() for page in PAGES for block in blocks(page, "") for line in block.splitlines()]
    found = [re.match(r"(?:snakemake|python workflow/resume.py) (.*?)(?: --dry-run)?$", line) for line in lines]
    commands = {match[1] for match in found if match}
    assert len(commands) >= 4
    for command in commands:
        done = subprocess.run(
            [*SNAKEMAKE, *command.split(), "--dry-run", "--quiet"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(plugins)},
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


def test_the_readmes_models_block_is_a_valid_model():
    (block,) = blocks(ROOT / "README.md", "yaml")
    (model,) = yaml.safe_load(block)["models"].values()
    schema = yaml.safe_load((ROOT / "workflow/schemas/config.schema.yaml").read_text())
    assert set(model) <= set(schema["properties"]["models"]["additionalProperties"]["properties"])


def test_the_python_snippet_reads_a_summary(tmp_path):
    (snippet,) = blocks(ROOT / "README.md", "python")
    (tmp_path / "results").mkdir()
    row = dict.fromkeys(("rule", "intervention", "component", "position"), "x")
    pl.DataFrame([row]).write_parquet(tmp_path / "results/summary.parquet")
    subprocess.run([sys.executable, "-c", snippet], cwd=tmp_path, check=True, capture_output=True)


def test_the_formats_page_names_the_rules_columns():
    text = (ROOT / "docs/formats.md").read_text()
    for rule in ("flip", "fixed"):
        for name in role_columns(rule)[0]:
            assert f"`{name}`" in text
    assert role_columns("crossfit")[1] == ("question_anchored_crossfit_2", "delta_p_crossfit_2")
    assert "`question_anchored_{rule}_{1,2}`, `delta_p_{rule}_{1,2}`" in text


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
