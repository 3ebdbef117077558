"""What somebody sees who brings a model and questions of their own, in a folder of their own."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from small_run import SNAKEMAKE, base_config, copy_project
from small_things import ROOT

ROWS = [{"question": f"who wrote book {number}", "answers": ["Jane Austen"]} for number in range(5)]


def run(project: Path, folder: str, config: dict, *targets: str) -> subprocess.CompletedProcess:
    """A run in a folder of its own, as config/README.md describes it."""
    (project / "mine.yaml").write_text(yaml.safe_dump(config))
    options = ["--cores", "all", "--directory", folder, "--configfile", "mine.yaml"]
    assert "snakemake --cores all --directory runs/a --configfile mine.yaml" in (ROOT / "config/README.md").read_text()
    return subprocess.run([*SNAKEMAKE, *targets, *options], cwd=project, capture_output=True, text=True)


def own_config(questions: str) -> dict:
    dataset = {"title": "Mine", "layout": "own", "source": "file", "path": questions}
    return base_config() | {"datasets": {"mine": dataset}}


@pytest.mark.slow
def test_wrong_questions_and_a_broken_model_are_named_without_a_traceback(tmp_path):
    folder = copy_project(tmp_path) / "runs/a"
    (folder / "tiny-model").mkdir(parents=True)
    lines = [json.dumps(row) for row in [*ROWS, {"question": "who wrote Emma", "answers": "Jane Austen"}]]
    (folder / "mine.jsonl").write_text("\n\n".join(lines))
    (folder / "tiny-model/config.json").write_text('{"model_type": "llama"}')
    (folder / "tiny-model/model.safetensors").write_bytes(b"cut short")
    targets = ["results/questions/mine.parquet", "results/models/tiny.json"]
    done = run(tmp_path, "runs/a", own_config("mine.jsonl"), *targets)
    assert done.returncode == 1
    said = done.stdout + done.stderr
    logs = {file.parent.name: file.read_text() for file in (folder / "results/logs").rglob("*.log")}
    sentences = {
        "fetch_questions": "Line 11 of mine.jsonl does not fit in one table with those above: its 'answers' is of",
        "fetch_model": "tiny-model/model.safetensors cannot be read as safetensors: ",
    }
    for stage, sentence in sentences.items():
        assert sentence in said
        last = logs[stage].splitlines()[-1]
        assert sentence in last
        assert "results/" not in last
    assert "Traceback" not in "".join([said, *logs.values()])
    assert not (tmp_path / "results").exists()
