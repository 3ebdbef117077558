"""The configs of one published model each say what config/paper.yaml says of it, and what it takes."""

import math

import pytest
import yaml
from transformers import AutoConfig

from anchorscope.config_checks import mistakes
from anchorscope.needs import needs
from miniatures import shape_of
from small_things import ROOT

SCHEMA = yaml.safe_load((ROOT / "workflow/schemas/config.schema.yaml").read_text())
PAPER = yaml.safe_load((ROOT / "config/paper.yaml").read_text())
ALONE = [path.stem for path in sorted((ROOT / "config").glob("*.yaml")) if path.stem != "paper"]


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
