"""The workflow where Snakemake's catalogue looks for it, and as a module of somebody else's workflow."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from small_run import SNAKEMAKE, jobs
from small_things import ROOT

OWN_WORKFLOW = """
configfile: "mine.yaml"


module anchorscope:
    snakefile:
        "{root}/Snakefile"
    config:
        config["anchorscope"]


use rule * from anchorscope as anchorscope_*


rule note:
    input:
        "results/summary.csv",
    output:
        "note.txt",
    shell:
        "head -n 1 {{input}} > {{output}}"
"""


def snakemake(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([*SNAKEMAKE, "--cores", "2", *arguments], cwd=folder, capture_output=True, text=True)


def own_workflow(folder: Path, config: dict) -> None:
    """A workflow that uses this one, with a config that has a key of its own."""
    (folder / "Snakefile").write_text(OWN_WORKFLOW.format(root=ROOT))
    (folder / "mine.yaml").write_text(yaml.safe_dump({"author": "me", "anchorscope": config}, sort_keys=False))


def default_config() -> dict:
    return yaml.safe_load((ROOT / "config.yaml").read_text())


@pytest.mark.slow
def test_the_snakefile_of_the_catalogue_plans_what_the_one_at_the_root_plans(tmp_path):
    shutil.copy2(ROOT / "config.yaml", tmp_path)
    planned = [
        jobs(snakemake(ROOT, "--dry-run", "--directory", str(tmp_path), *arguments))
        for arguments in ([], ["--snakefile", "workflow/Snakefile"])
    ]
    assert planned[0]["answer"] == 4
    assert planned[0] == planned[1]


def test_the_catalogue_finds_its_entry_and_how_to_configure_a_run():
    usage = yaml.safe_load((ROOT / ".snakemake-workflow-catalog.yml").read_text())["usage"]
    assert usage["software-stack-deployment"]["conda"]
    assert usage["software-stack-deployment"]["report"]
    assert (ROOT / "config/README.md").is_file()


def test_another_workflow_plans_every_stage_under_its_own_names(tmp_path):
    own_workflow(tmp_path, default_config())
    planned = jobs(snakemake(tmp_path, "--dry-run"))
    assert planned["anchorscope_all"] == 1, "without a target of one's own, everything is made"
    assert planned["anchorscope_answer"] == 4
    assert all(name.startswith("anchorscope_") for name in planned)
    assert jobs(snakemake(tmp_path, "--dry-run", "note.txt"))["note"] == 1
    assert jobs(snakemake(tmp_path, "--dry-run", "anchorscope_salmon"))["anchorscope_describe_salmon"] == 1


def test_a_target_of_ones_own_stays_the_default(tmp_path):
    own_workflow(tmp_path, default_config())
    text = (tmp_path / "Snakefile").read_text()
    (tmp_path / "Snakefile").write_text('rule mine:\n    input:\n        "note.txt",\n\n\n' + text)
    planned = jobs(snakemake(tmp_path, "--dry-run"))
    assert planned["mine"] == planned["note"] == 1
    assert "anchorscope_report" not in planned


def test_a_mistake_in_the_config_of_another_workflow_is_explained_as_well(tmp_path):
    own_workflow(tmp_path, {**default_config(), "qestions": 5})
    done = snakemake(tmp_path, "--dry-run")
    assert done.returncode == 1
    assert "Unknown key 'qestions' in the config; did you mean 'questions'?" in done.stderr


@pytest.mark.slow
def test_another_workflow_gets_the_same_tables_and_figures(finished, tmp_path):
    shutil.copytree(finished / "tiny-model", tmp_path / "tiny-model")
    for name in ("one.jsonl", "two.jsonl"):
        shutil.copy2(finished / name, tmp_path / name)
    own_workflow(tmp_path, yaml.safe_load((finished / "test.yaml").read_text()))
    done = snakemake(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    made = [path.relative_to(finished) for path in (finished / "results").rglob("*.*")]
    compared = [path for path in made if path.suffix in (".csv", ".md", ".png", ".svg")]
    assert len(compared) > 30
    for path in compared:
        assert (tmp_path / path).read_bytes() == (finished / path).read_bytes(), path
    assert "anchorscope_" not in (tmp_path / "results/report.html").read_text()
    report = snakemake(tmp_path, "--report", "report.html")
    assert report.returncode == 0, report.stderr
