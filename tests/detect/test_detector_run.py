"""The rule that trains detectors, in a real run."""

import json
import shutil

import pytest
import torch
from safetensors import safe_open

from anchorscope.answer.prompts import PromptSet
from anchorscope.detect.detector import load_detector
from anchorscope.detect.score_file import score_file
from small_run import jobs, snakemake


@pytest.mark.slow
def test_a_run_trains_a_detector_that_its_own_manifest_goes_with(finished, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    shutil.copytree(finished, folder, symlinks=True)
    target = "results/detectors/tiny.safetensors"
    assert jobs(snakemake(folder, target, "--dry-run")) == {"train_detector": 1}
    done = snakemake(folder, target)
    assert done.returncode == 0, done.stdout + done.stderr
    monkeypatch.chdir(folder)
    about = load_detector(target).about
    assert about.datasets == ["one", "two"]
    assert about.prompt == PromptSet.bundled("few_shot").texts["first"]
    with safe_open(target, framework="pt") as file:
        made = json.loads(file.metadata()["anchorscope"])
    assert len(made["code"]) == 16
    assert made["versions"]["torch"] == torch.__version__
    (folder / "asked.jsonl").write_text('{"question": "Who wrote Emma?", "answer": "Jane Austen"}\n')
    settings = {"dtype": "float32", "threads": 1, "batch_tokens": None}
    score_file("asked.jsonl", target, folder / "results/models/tiny.json", target=folder / "out", **settings)
    (line,) = (folder / "out").read_text().splitlines()
    assert 0 < json.loads(line)["hallucinated"] < 1
