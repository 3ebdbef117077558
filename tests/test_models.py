"""What a model's folder may hold, and what is never done with it."""

import json
import os
import sys
from pathlib import Path

import gguf
import pytest

from anchorscope.loading import load_model, load_tokenizer
from anchorscope.models import describe, fetch, reading_gguf_once, revision_of
from conftest import tiny_model

CODE = """
from pathlib import Path
Path({marker!r}).touch()
from transformers import LlamaConfig as Config, LlamaForCausalLM as Model
"""


@pytest.fixture
def saved(tmp_path, tokenizer) -> Path:
    """A small Llama in a folder, as a hub would have it."""
    folder = tmp_path / "saved"
    tiny_model("llama", len(tokenizer), layers=2).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def with_code(folder: Path, model_type: str) -> Path:
    """Add code that leaves a mark when it is run, and a config that asks for it; the mark."""
    marker = folder.parent / "the code was run"
    (folder / "own.py").write_text(CODE.format(marker=str(marker)))
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": model_type, "auto_map": {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}}
    (folder / "config.json").write_text(json.dumps(config))
    return marker


def test_a_model_that_needs_its_own_code_is_refused_and_the_code_is_not_run(saved, tmp_path):
    marker = with_code(saved, "homemade")
    fetch({"path": str(saved)}, tmp_path / "fetched")
    with pytest.raises(
        ValueError, match=r"^mine is of type 'homemade', .* code that comes with a model is never run\.$"
    ):
        describe(tmp_path / "fetched", "mine", {"path": str(saved)})
    assert not marker.exists()


def test_a_known_model_that_brings_code_is_loaded_without_it(saved, tmp_path):
    marker = with_code(saved, "llama")
    fetch({"path": str(saved)}, tmp_path / "fetched")
    manifest = describe(tmp_path / "fetched", "mine", {"path": str(saved)})
    assert type(load_model(manifest, "float32", threads=1)).__module__.startswith("transformers.models.llama")
    assert not marker.exists()
    assert not (tmp_path / "fetched/own.py").exists()


def test_a_pickle_in_place_of_safetensors_is_not_loaded(saved, tmp_path):
    (saved / "model.safetensors").rename(saved / "pytorch_model.bin")
    fetch({"path": str(saved)}, tmp_path / "fetched")
    with pytest.raises(FileNotFoundError, match=r"^The model folder of mine has no \.safetensors file; other formats"):
        describe(tmp_path / "fetched", "mine", {"path": str(saved)})


def test_a_cache_that_was_cleared_is_noticed_and_the_command_that_helps_is_named(saved, tmp_path):
    fetch({"path": str(saved)}, tmp_path / "fetched")
    manifest = describe(tmp_path / "fetched", "mine", {"path": str(saved)})
    (saved / "model.safetensors").unlink()
    with pytest.raises(
        FileNotFoundError,
        match=r"^model\.safetensors in .* gone .* `snakemake --cores 1 --force results/models/mine\.json`",
    ):
        load_tokenizer(manifest)


def test_the_manifest_counts_the_parameters(saved, tmp_path, tokenizer):
    fetch({"path": str(saved)}, tmp_path / "fetched")
    manifest = describe(tmp_path / "fetched", "mine", {"path": str(saved)})
    assert manifest["parameters"] == sum(p.numel() for p in tiny_model("llama", len(tokenizer), layers=2).parameters())


@pytest.fixture
def reads():
    """The safetensors files that are opened from Python, in order."""
    opened: list[str] = []
    listening = [True]

    def hear(event: str, arguments: tuple) -> None:
        if listening and event == "open" and str(arguments[0]).endswith(".safetensors"):
            opened.append(Path(arguments[0]).name)

    sys.addaudithook(hear)  # there is no way to take it away again
    yield opened
    listening.clear()


def test_weights_that_did_not_change_are_hashed_once(saved, tmp_path, reads):
    source, hashes = {"path": str(saved)}, tmp_path / "models/.hashes/mine.json"
    weights = saved / "model.safetensors"
    (saved / "more.safetensors").write_bytes(weights.read_bytes())
    fetch(source, tmp_path / "fetched")
    plain = revision_of(tmp_path / "fetched", source)
    reads.clear()
    assert revision_of(tmp_path / "fetched", source, hashes) == plain
    assert sorted(reads) == ["model.safetensors", "more.safetensors"]
    reads.clear()
    assert revision_of(tmp_path / "fetched", source, hashes) == plain
    assert reads == []

    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    os.utime(weights, ns=(0, 1))
    reads.clear()
    changed = revision_of(tmp_path / "fetched", source, hashes)
    assert reads == ["model.safetensors"], "the other one is remembered"
    assert changed == revision_of(tmp_path / "fetched", source) != plain


@pytest.mark.parametrize("content", ["", "{", "[]", '{"NAME": 1}', '{"NAME": [1, 2]}', '{"NAME": [0, 0, 0, 0, "x"]}'])
def test_damaged_memories_of_hashes_are_ignored(saved, tmp_path, content):
    hashes = tmp_path / "mine.json"
    hashes.write_text(content.replace("NAME", str((saved / "model.safetensors").resolve())))
    source = {"path": str(saved)}
    assert revision_of(saved, source, hashes) == revision_of(saved, source)
    assert len(json.loads(hashes.read_text())) == 1, "and written anew"


def test_hashes_that_cannot_be_kept_stop_nothing(saved, tmp_path):
    (tmp_path / "file").touch()
    source = {"path": str(saved)}
    assert revision_of(saved, source, tmp_path / "file/mine.json") == revision_of(saved, source)


def test_what_a_gguf_file_holds_is_read_once_while_it_is_converted():
    plain = gguf.GGUFReader, gguf.get_tensor_name_map
    with reading_gguf_once():
        names = [gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2) for _ in range(2)]
    assert names[0] is names[1]
    assert (gguf.GGUFReader, gguf.get_tensor_name_map) == plain
