"""What a model is said to take, against real files, recorded measurements, and the pages and configs that repeat it."""

from pathlib import Path

import pytest
import torch
import yaml
from accelerate import infer_auto_device_map
from transformers import AutoConfig, AutoModelForCausalLM

from anchorscope.extract.axes import FULL_GRID, HEADLINE
from anchorscope.extract.store import KEYS, ActivationWriter
from anchorscope.files.identity import read_json
from anchorscope.models.sizes import FOR_SHARDS, gpus_needed
from anchorscope.needs import GPU_BYTES, Machine, lacks, line, needs, print_needs
from miniatures import shape_of
from small_things import FAMILIES, ROOT, tiny_model

PAPER = yaml.safe_load((ROOT / "config/paper.yaml").read_text())
MODELS = PAPER["models"]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_take_what_their_file_takes(family, dtype, tmp_path):
    model = tiny_model(family, 30_000).to(dtype)
    model.save_pretrained(tmp_path)
    file = (tmp_path / "model.safetensors").stat().st_size
    assert needs(model.config, dtype).weight_bytes == pytest.approx(file, rel=0.02)


def test_an_example_takes_what_it_takes_in_its_file(tmp_path):
    config = AutoConfig.for_model(
        "llama", hidden_size=512, num_hidden_layers=6, vocab_size=99, num_attention_heads=8, intermediate_size=64
    )
    examples = 100
    with ActivationWriter(tmp_path / "a", 6, 512, torch.bfloat16, {}) as writer:
        keys = [dict.fromkeys(KEYS.names) | {"id": str(index)} for index in range(examples)]
        writer.add(keys, torch.randn(3, 6, 5, 3, examples, 512).to(torch.bfloat16))
    files = [file.stat().st_size for file in (tmp_path / "a").iterdir()]
    assert needs(config, grid=FULL_GRID).example_bytes * examples == pytest.approx(sum(files), rel=0.02)
    assert needs(config).example_bytes * examples == pytest.approx(files[0], rel=0.02)


@pytest.mark.parametrize(
    "row", read_json(ROOT / "benchmarks/results/needs-h200.json")["results"], ids=lambda r: r["model"]
)
def test_what_is_expected_is_near_what_was_measured_on_a_gpu(row):
    config = AutoConfig.from_pretrained(ROOT / f"workflow/resources/shapes/{row['model']}.json")
    expected = needs(config, grid=FULL_GRID)
    assert row["weights GB, measured"] == pytest.approx(expected.weight_bytes / 1e9, rel=0.01)
    assert row["file MB/ex, measured"] == pytest.approx(expected.example_bytes / 1e6, rel=0.01)
    assert row["GPU GB, measured"] == pytest.approx(expected.gpu_bytes / 1e9, rel=0.25)
    assert row["host GB, measured"] < 1.1 * expected.host_bytes / 1e9
    assert 0.5 < row["extract ms/ex, measured"] / (1e3 * expected.extract_seconds) < 2


@pytest.mark.parametrize(
    "row", read_json(ROOT / "benchmarks/results/needs-h200-answers.json")["results"], ids=lambda r: r["model"]
)
def test_answering_is_expected_to_take_about_as_long_as_was_measured(row):
    config = AutoConfig.from_pretrained(ROOT / f"workflow/resources/shapes/{row['model']}.json")
    assert 0.5 < row["answer ms/q, measured"] / (1e3 * needs(config).answer_seconds) < 2


@pytest.mark.parametrize(
    "row", read_json(ROOT / "benchmarks/results/extract-disk-h200.json")["results"], ids=lambda r: r["model"]
)
@pytest.mark.parametrize(("name", "grid"), [("headline", HEADLINE), ("grid", FULL_GRID)])
def test_extraction_is_expected_to_take_about_as_long_as_was_measured(row, name, grid):
    config = AutoConfig.from_pretrained(ROOT / f"workflow/resources/shapes/{row['model']}.json")
    assert 0.5 < needs(config, grid=grid).extract_seconds * row[f"{name} to disk ex/s"] < 2


@pytest.mark.parametrize("name", MODELS)
def test_the_models_page_says_of_each_published_model_what_it_takes(name):
    page = (ROOT / "docs/models.md").read_text()
    title = MODELS[name]["title"].replace("-Instruct", "")  # of which the page says that they take the same
    assert line(title, needs(AutoConfig.from_pretrained(shape_of(name)))) in page
    assert "instruction-tuned versions take the same" in page


@pytest.mark.parametrize("name", MODELS)
def test_the_published_config_asks_for_enough_gpus_and_memory(name):
    model = MODELS[name]
    expected = needs(AutoConfig.from_pretrained(shape_of(name)))
    assert model["gpus"] == gpus_needed(expected.weight_bytes, int(GPU_BYTES))
    assert model["memory_gb"] * 1e9 > 1.25 * expected.host_bytes
    tuned = "instruct" in name or name.startswith("qwen3")
    assert (model["prompt"], model["dtype"]) == ("chat" if tuned else "few_shot", "bfloat16")


def test_what_a_machine_lacks_is_named():
    expected = needs(AutoConfig.from_pretrained(shape_of("llama-3-70b")))
    gpu, plenty = int(GPU_BYTES), 10**15
    assert lacks(expected, Machine([gpu, gpu], plenty, plenty)) == []
    assert lacks(expected, Machine([gpu], plenty, plenty)) == ["GPUs (it has 1 of 2 such)"]
    assert lacks(expected, Machine([], plenty, plenty)) == ["2 GPUs of 80 GB"]
    short = lacks(expected, Machine([gpu, gpu], int(4e9), int(100e9)))
    assert [said.split(" (it has ")[0] for said in short] == ["memory", "free disk space"]
    assert all(f"it has {there} of " in said for there, said in zip(("4", "100"), short, strict=True))
    small = needs(AutoConfig.from_pretrained(shape_of("llama-3.2-1b")))
    assert lacks(small, Machine([], plenty, plenty)) == ["a GPU with 4 GB"]


def test_the_command_has_a_header_and_names_a_file_that_is_no_config(tmp_path, capsys):
    print_needs([ROOT / "workflow/resources/shapes/llama-3.2-1b.json"])
    head, rule, row, _, verdict = capsys.readouterr().out.splitlines()
    assert f"\n{head}\n{rule}\n" in (ROOT / "docs/models.md").read_text()
    assert row.count("|") == head.count("|")
    assert verdict.startswith("llama-3.2-1b: this machine ")
    (tmp_path / "mine.json").write_text("[]")
    with pytest.raises(ValueError, match=r"mine\.json cannot be read as a model's config"):
        print_needs([tmp_path / "mine.json"])


def test_the_largest_published_model_goes_onto_its_gpus_whole():
    """As the library places it: nothing on the processor, nothing on disk."""
    config = AutoConfig.from_pretrained(shape_of("llama-3-70b"))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    gpus = gpus_needed(needs(config).weight_bytes, int(GPU_BYTES))
    room = {gpu: int(FOR_SHARDS * GPU_BYTES) for gpu in range(gpus)}
    places = infer_auto_device_map(model, room, no_split_module_classes=list(model._no_split_modules))
    assert set(places.values()) == set(range(gpus)) == {0, 1}


def test_the_published_config_has_every_published_model_pinned_and_in_a_figure_of_its_family():
    assert len({model["revision"] for model in MODELS.values()}) == len(MODELS) == 14
    assert {name for figure in PAPER["figures"].values() for name in figure["models"]} == set(MODELS)
    for figure in PAPER["figures"].values():
        left, right = (needs(AutoConfig.from_pretrained(shape_of(name))).parameters for name in figure["models"])
        assert left < right


def test_a_config_that_is_not_there_or_tiny_is_one_true_sentence(tmp_path, capsys):
    with pytest.raises(ValueError, match=r"^/nope\.json does not exist; name a model's config\.json\.$"):
        print_needs([Path("/nope.json")])
    tiny_model("llama", 99).config.save_pretrained(tmp_path)
    print_needs([tmp_path / "config.json"])
    assert "GPU with 0 GB" not in capsys.readouterr().out
    assert lacks(needs(tiny_model("llama", 99).config), Machine([], 10**12, 10**13)) == ["a GPU with 1 GB"]
