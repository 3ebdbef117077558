"""The published models' shapes, as configs that transformers reads."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from conftest import ROOT

SHAPES = ROOT / "workflow/resources/shapes"


@pytest.mark.parametrize(
    ("name", "billions"), [("llama-3.2-1b", 1.24), ("llama-3.2-3b", 3.21), ("qwen3-8b", 8.19), ("qwen3-32b", 32.76)]
)
def test_the_published_shapes_have_the_published_sizes(name, billions):
    config = AutoConfig.from_pretrained(SHAPES / f"{name}.json")
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    assert round(sum(parameter.numel() for parameter in model.parameters()) / 1e9, 2) == billions


@pytest.mark.parametrize(
    ("name", "rope"),
    [
        ("llama-3.2-1b", {"rope_type": "llama3", "rope_theta": 500_000, "factor": 32, "high_freq_factor": 4}),
        ("llama-3.2-3b", {"rope_type": "llama3", "rope_theta": 500_000, "factor": 32, "low_freq_factor": 1}),
        ("qwen3-8b", {"rope_type": "default", "rope_theta": 1_000_000}),
        ("qwen3-32b", {"rope_type": "default", "rope_theta": 1_000_000}),
    ],
)
def test_the_published_shapes_rotary_settings_are_read(name, rope):
    config = AutoConfig.from_pretrained(SHAPES / f"{name}.json")
    assert rope.items() <= config.rope_parameters.items()
