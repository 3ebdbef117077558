"""The configs of one published model each say what config/paper.yaml says of it, and what it takes."""

import math
import re

import pytest
import yaml
from transformers import AutoConfig

from anchorscope.config_checks import mistakes
from anchorscope.files.identity import read_json
from anchorscope.needs import line, needs
from miniatures import shape_of
from small_things import ROOT

SCHEMA = yaml.safe_load((ROOT / "workflow/schemas/config.schema.yaml").read_text())
PAPER = yaml.safe_load((ROOT / "config/paper.yaml").read_text())
ALONE = [name for name in PAPER["models"] if (ROOT / f"config/{name}.yaml").exists()]


def text_of(name: str) -> str:
    return (ROOT / f"config/{name}.yaml").read_text()


def test_two_published_models_can_be_run_without_editing():
    assert ALONE == ["llama-3.2-1b", "qwen3-8b"]


@pytest.mark.parametrize("name", ALONE)
def test_it_is_the_published_experiment_with_one_model(name):
    config = yaml.safe_load(text_of(name))
    alone = {"models": {name: PAPER["models"][name]}, "figures": {name: {"models": [name]}}}
    assert config == PAPER | alone
    assert mistakes(config, SCHEMA) == []


@pytest.mark.parametrize("name", ALONE)
def test_its_first_lines_say_what_it_takes_and_how_it_is_run(name):
    head = text_of(name).partition("\nseed:")[0]
    expected = needs(AutoConfig.from_pretrained(shape_of(name)))
    memory = max(PAPER["models"][name]["memory_gb"], math.ceil(expected.host_bytes / 1e9))
    disk = math.ceil((expected.weight_bytes + expected.activation_bytes) / 1e9)
    for said in (f"a GPU with {expected.gpu_bytes / 1e9:.0f} GB", f"{memory} GB of memory", f"{disk} GB of disk"):
        assert said in head
    assert ("licence" in head) == PAPER["models"][name]["hub"].startswith("meta-llama/")
    assert f"snakemake --cores all --configfile config/{name}.yaml" in head


def test_the_models_page_repeats_what_is_computed_and_what_was_measured_of_both():
    page = (ROOT / "docs/models.md").read_text()
    record = read_json(ROOT / "benchmarks/results/needs-h200.json")["results"]
    rows = dict(re.findall(r"^\| ((?:memory|to download|answering).*?) \| (.*) \|$", page, re.M))
    of_gpu, of_machine, disk, time = (re.findall(r"[\d.]+", row) for row in rows.values())
    for number, name in enumerate(ALONE):
        expected = needs(AutoConfig.from_pretrained(shape_of(name)))
        (measured,) = (row for row in record if row["model"] == name)
        assert of_gpu[2 * number :][:2] == [f"{expected.gpu_bytes / 1e9:.0f}", f"{measured['GPU GB, measured']:.1f}"]
        assert of_machine[2 * number :][:2] == [
            f"{expected.host_bytes / 1e9:.0f}",
            f"{measured['host GB, measured']:.1f}",
        ]
        assert disk[2 * number] == f"{expected.weight_bytes / 1e9:.1f}"
        assert f"{disk[2 * number + 1]} GB of disk" in text_of(name)
        assert f" {time[number]} min |" in line(PAPER["models"][name]["title"], expected)
