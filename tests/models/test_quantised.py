"""Weights that are quantised by a model's own config, against numbers unpacked by hand where no library is needed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import GptOssConfig, GptOssForCausalLM, PreTrainedModel

from anchorscope.models.describe import describe
from anchorscope.models.fetch import fetch
from anchorscope.models.loading import load_model
from small_things import ROOT, one_at_a_time, tiny_model

BLOCK = 16  # rows and columns that share a scale in FP8
GROUP = 32  # numbers that share a scale in MXFP4
LIBRARIES = ("bitsandbytes==0.50.2", "torchao==0.18.0")
# In a process of its own, because transformers looks for these libraries when it is imported.
QUANTISE = """
import sys
from pathlib import Path
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, TorchAoConfig
from anchorscope.models.fetch import describe
from anchorscope.models.fetch import fetch
from anchorscope.models.loading import load_model
from architectures import compare
dense, folder = sys.argv[2], Path(sys.argv[3])
before = AutoModelForCausalLM.from_pretrained(dense, quantization_config=eval(sys.argv[1]), dtype=torch.float32)
before.save_pretrained(folder / "saved")
AutoTokenizer.from_pretrained(dense).save_pretrained(folder / "saved")
source = {"path": str(folder / "saved")}
fetch(source, folder / "fetched")
model = load_model(describe(folder / "fetched", "mine", source), "float32", threads=1)
ids = torch.arange(5, 25)[None]
assert torch.equal(model(ids).logits, before(ids).logits), "not what was saved"
assert not torch.equal(model(ids).logits, AutoModelForCausalLM.from_pretrained(dense)(ids).logits), "not quantised"
assert compare(model).exact
"""
FOUR_BITS = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]


def put(folder: Path, weights: dict[str, Tensor], method: dict) -> None:
    """Replace the weights in a folder by quantised ones."""
    save_file(weights, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": method}))


def loaded(folder: Path) -> PreTrainedModel:
    """The model as a job has it."""
    source, fetched = {"path": str(folder)}, folder.parent / "fetched"
    fetch(source, fetched)
    return load_model(describe(fetched, "mine", source), "float32", threads=1)


def to_fp8(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A matrix in eight bits, the scales of its blocks, and the numbers that these stand for."""
    stored, meant = torch.empty_like(weight, dtype=torch.float8_e4m3fn), torch.empty_like(weight)
    scales = torch.empty(weight.shape[0] // BLOCK, weight.shape[1] // BLOCK)
    for row in range(len(scales)):
        for column in range(scales.shape[1]):
            where = slice(row * BLOCK, (row + 1) * BLOCK), slice(column * BLOCK, (column + 1) * BLOCK)
            scales[row, column] = weight[where].abs().max() / 448
            stored[where] = (weight[where] / scales[row, column]).to(torch.float8_e4m3fn)
            meant[where] = stored[where].float() * scales[row, column]
    return stored, scales, meant


def test_fp8_weights_are_loaded_as_the_numbers_that_they_stand_for(tmp_path, tokenizer):
    model = tiny_model("llama", len(tokenizer))
    model.save_pretrained(tmp_path / "saved")
    tokenizer.save_pretrained(tmp_path / "saved")
    weights = load_file(tmp_path / "saved/model.safetensors")
    meant = {}
    for name in [name for name in weights if name.endswith("_proj.weight")]:
        weights[name], weights[f"{name}_scale_inv"], meant[name] = to_fp8(weights[name])
    put(tmp_path / "saved", weights, {"quant_method": "fp8", "weight_block_size": [BLOCK, BLOCK]})
    mine = loaded(tmp_path / "saved")
    for name, values in model.state_dict().items():
        assert torch.equal(mine.state_dict()[name], meant.get(name, values)), name


def from_mxfp4(blocks: Tensor, scales: Tensor) -> Tensor:
    """The numbers [experts, columns, rows] of bytes [experts, rows, groups, 16] that hold two each, the lower first."""
    experts, rows, groups, _ = blocks.shape
    meant = torch.empty(experts, groups * GROUP, rows)
    for expert in range(experts):
        for row in range(rows):
            numbers = [
                FOUR_BITS[half] * 2.0 ** (int(scales[expert, row, group]) - 127)
                for group in range(groups)
                for byte in blocks[expert, row, group].tolist()
                for half in (byte & 15, byte >> 4)
            ]
            meant[expert, :, row] = torch.tensor(numbers)
    return meant


def test_mxfp4_experts_are_loaded_as_the_numbers_that_they_stand_for(tmp_path, tokenizer):
    shape = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 4, "num_local_experts": 4}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "num_experts_per_tok": 2}
    tokens = {"vocab_size": len(tokenizer), "pad_token_id": 2, "eos_token_id": 2, "max_position_embeddings": 512}
    torch.manual_seed(0)
    model = GptOssForCausalLM(GptOssConfig(**shape, **heads, **tokens, initializer_range=0.25, sliding_window=24))
    model.save_pretrained(tmp_path / "saved")
    tokenizer.save_pretrained(tmp_path / "saved")
    weights, meant = load_file(tmp_path / "saved/model.safetensors"), {}
    for name in [name for name in weights if name.endswith(("gate_up_proj", "down_proj"))]:
        experts, columns, rows = weights.pop(name).shape
        blocks = torch.randint(0, 256, (experts, rows, columns // GROUP, GROUP // 2), dtype=torch.uint8)
        scales = torch.randint(123, 127, (experts, rows, columns // GROUP), dtype=torch.uint8)
        weights |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        meant[name] = from_mxfp4(blocks, scales)
    put(tmp_path / "saved", weights, {"quant_method": "mxfp4"})
    mine = loaded(tmp_path / "saved")
    for name, values in model.state_dict().items():
        assert torch.equal(mine.state_dict()[name], meant.get(name, values)), name


def test_weights_quantised_by_a_library_that_is_missing_are_one_sentence(saved):
    put(saved, load_file(saved / "model.safetensors"), {"quant_method": "gptq", "bits": 4, "group_size": 32})
    with pytest.raises(ValueError, match=r"^mine is quantised by gptq, and its weights cannot be read here: [^\n]*\.$"):
        loaded(saved)


@pytest.fixture(scope="module")
def libraries(request) -> Path:
    """A folder with libraries that quantise, kept in pytest's own cache."""
    folder = request.config.cache.mkdir("quantisers")
    options = ["--quiet", "--no-deps", "--upgrade", "--target", str(folder)]
    with one_at_a_time("quantisers"):
        done = subprocess.run(
            [sys.executable, "-m", "pip", "install", *options, *LIBRARIES], capture_output=True, text=True
        )
    if done.returncode:
        pytest.skip(f"libraries that quantise cannot be fetched: {done.stderr.strip().splitlines()[-1]}")
    return folder


def with_library(libraries: Path, settings: str, dense: Path, folder: Path) -> str:
    """The last line of a process that quantises a model, loads it and compares."""
    paths = os.pathsep.join(map(str, (ROOT / "workflow", ROOT / "tests/helpers", libraries)))
    command = [sys.executable, "-c", QUANTISE, settings, str(dense), str(folder)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True)
    return done.stderr.strip().splitlines()[-1] if done.returncode else "exact"


@pytest.fixture
def dense(tmp_path, tokenizer) -> Path:
    tiny_model("llama", len(tokenizer)).save_pretrained(tmp_path / "dense")
    tokenizer.save_pretrained(tmp_path / "dense")
    return tmp_path / "dense"


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        'BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32)',
        'TorchAoConfig(__import__("torchao").quantization.Int8WeightOnlyConfig())',
    ],
    ids=["bitsandbytes", "torchao"],
)
def test_a_model_quantised_by_a_library_is_measured_exactly(settings, libraries, dense, tmp_path):
    assert with_library(libraries, settings, dense, tmp_path) == "exact"


@pytest.mark.slow
def test_eight_bits_of_bitsandbytes_depend_on_the_batch_and_are_refused_in_float32(libraries, dense, tmp_path):
    """Which columns it leaves out of the eight bits depends on all tokens of a batch; how it shows, on the machine."""
    said = with_library(libraries, "BitsAndBytesConfig(load_in_8bit=True)", dense, tmp_path)
    begins, _, fault = said.partition("This llama model cannot be measured: ")
    assert begins == "ValueError: "
    assert fault.startswith(
        ("tokens see those that follow them", "what it computes depends on what else is in a batch")
    )
