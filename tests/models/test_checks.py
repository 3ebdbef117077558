"""Models whose files are not what they seem are refused in one sentence, before a question is asked."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from anchorscope.models.describe import describe
from anchorscope.models.fetch import fetch
from anchorscope.models.loading import load_model, load_tokenizer, read_config
from small_things import FAMILIES, tiny_model

Tensors = dict[str, torch.Tensor]


def rewrite(folder: Path, change: Callable[[Tensors], Tensors]) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file(change(weights), folder / "model.safetensors", metadata={"format": "pt"})


def reconfigure(folder: Path, **settings: object) -> None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config | settings))


def measured(folder: Path) -> None:
    """Fetch and load the model, as the stages do."""
    target = folder.parent / "fetched"
    fetch({"path": str(folder)}, target)
    load_model(describe(target, name="mine", source={"path": str(folder)}), "float32", threads=1)


def without(name: str) -> Callable[[Tensors], Tensors]:
    return lambda weights: {key: value for key, value in weights.items() if key != name}


def halved(name: str) -> Callable[[Tensors], Tensors]:
    return lambda weights: weights | {name: weights[name][:8].clone()}


def spoiled(name: str, value: float) -> Callable[[Tensors], Tensors]:
    def change(weights: Tensors) -> Tensors:
        weights[name].view(-1)[3] = value
        return weights

    return change


QUERIES = "model.layers.1.self_attn.q_proj.weight"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without(QUERIES), rf"^The files of mine lack {QUERIES}\. Every weight must come from them"),
        (halved(QUERIES), rf"^The files of mine have in another shape {QUERIES}\. "),
        (
            lambda weights: weights | {"model.layers.0.extra": torch.ones(1)},
            r"^The files of mine have, but the model has no place for, model\.layers\.0\.extra\. ",
        ),
        (
            lambda weights: {f"module.{name}": value for name, value in weights.items()},
            r"^The files of mine lack .* more",
        ),
        *(
            (spoiled(QUERIES, value), rf"^{QUERIES} of mine holds numbers that are not finite; the file is damaged\.$")
            for value in (float("nan"), float("inf"), float("-inf"))
        ),
    ],
    ids=["missing", "another shape", "unexpected", "prefixed", "nan", "infinite", "minus infinite"],
)
def test_every_weight_comes_from_the_files(saved, change, said):
    rewrite(saved, change)
    with pytest.raises(ValueError, match=said):
        measured(saved)


def test_more_layers_in_the_config_than_in_the_files_are_refused(saved):
    reconfigure(saved, num_hidden_layers=3)
    with pytest.raises(ValueError, match=r"^The files of mine lack model\.layers\.2\."):
        measured(saved)


@pytest.mark.parametrize("family", FAMILIES)
def test_whole_models_with_tied_weights_pass(family, tmp_path, few_tokens):
    tiny_model(family, len(few_tokens), layers=2).save_pretrained(tmp_path / "saved")
    few_tokens.save_pretrained(tmp_path / "saved")
    measured(tmp_path / "saved")


@pytest.mark.parametrize("file", ["../outside.bin", "outside.bin", "/tmp/outside.safetensors", "gone.safetensors"])
def test_an_index_that_names_another_file_is_refused(saved, file):
    (saved.parent / "outside.bin").write_bytes(b"never opened")
    names = list(load_file(saved / "model.safetensors"))
    index = {"metadata": {}, "weight_map": {**dict.fromkeys(names, "model.safetensors"), QUERIES: file}}
    (saved / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match=r"^model\.safetensors\.index\.json of mine names .*outside|gone"):
        measured(saved)


def test_an_index_without_a_map_is_refused(saved):
    (saved / "model.safetensors.index.json").write_text('{"weight_map": []}')
    with pytest.raises(ValueError, match=r"^model\.safetensors\.index\.json of mine has no weight_map"):
        measured(saved)


def test_a_folder_without_a_tokenizer_is_refused(saved):
    for file in saved.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(FileNotFoundError, match=r"^The model folder of mine has no tokenizer; put its tokenizer\.json"):
        measured(saved)


def test_a_tokenizer_that_loses_text_is_refused(saved):
    content = json.loads((saved / "tokenizer.json").read_text(encoding="utf-8"))
    content["normalizer"] = {"type": "Replace", "pattern": {"String": "e"}, "content": ""}
    (saved / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"^The tokenizer of mine turns '.*' into '.*'; it is damaged"):
        measured(saved)


def test_a_tokenizer_with_more_ids_than_embeddings_is_refused(tmp_path, few_tokens):
    tiny_model("llama", len(few_tokens) - 1, layers=2).save_pretrained(tmp_path / "saved")
    few_tokens.save_pretrained(tmp_path / "saved")
    said = rf"^The tokenizer of mine has ids up to {len(few_tokens) - 1}, but .* for {len(few_tokens) - 1} only"
    with pytest.raises(ValueError, match=said):
        measured(tmp_path / "saved")


@pytest.mark.parametrize("content", [b"", b"\x10", b"\xff" * 64, b"\x08\x00\x00\x00\x00\x00\x00\x00not json"])
def test_a_damaged_safetensors_file_is_named(saved, content):
    (saved / "model.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match=r"model\.safetensors cannot be read as safetensors: [^\n]*; fetch it"):
        measured(saved)


def test_a_truncated_safetensors_file_is_named(saved):
    file = saved / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"saved/model\.safetensors cannot be read as safetensors: "):
        measured(saved)


@pytest.mark.parametrize(
    ("content", "said"), [("{", "is not JSON: "), ("[1]", "is not a JSON object"), ("", "is not JSON")]
)
def test_a_broken_config_is_named(saved, content, said):
    (saved / "config.json").write_text(content)
    with pytest.raises(ValueError, match=rf"saved/config\.json {said}"):
        measured(saved)


def test_a_config_with_a_value_of_another_kind_is_named(saved):
    config = json.loads((saved / "config.json").read_text(encoding="utf-8"))
    (saved / "config.json").write_text(json.dumps(config | {"hidden_size": "wide"}))
    with pytest.raises(ValueError, match=r"saved/config\.json cannot be read as a model's config: .*hidden_size"):
        read_config(saved)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"version": "1.0"}'])
def test_a_broken_tokenizer_is_one_sentence(saved, content):
    (saved / "tokenizer.json").write_text(content)
    with pytest.raises(ValueError, match=r"^The tokenizer of mine (cannot be loaded: |turns |has no )[^\n]*$"):
        measured(saved)


def test_a_tokenizer_with_code_of_its_own_is_loaded_without_it_or_refused(saved):
    file = saved / "tokenizer_config.json"
    settings = {"auto_map": {"AutoTokenizer": ["own.Tokenizer", None]}, "tokenizer_class": "OwnTokenizer"}
    file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | settings))
    marker = saved.parent / "the code was run"
    (saved / "own.py").write_text(f"open({str(marker)!r}, 'w')")
    with pytest.raises(ValueError, match=r"^The tokenizer of mine cannot be loaded: it needs code of its own, "):
        load_tokenizer(saved, "mine")
    assert not marker.exists()


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json"])
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("fifo", "is not a plain file but a fifo, socket or device"),
        ("device", "is not a plain file but a fifo, socket or device"),
        ("loop", r"cannot be read \(Too many levels of symbolic links\)"),
        ("gone", "leads to a file that is gone"),
        ("folder", "is a folder"),
    ],
)
def test_what_is_not_a_plain_file_is_named_and_never_opened(saved, file, kind, said):
    path = saved / file
    path.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to({"device": "/dev/zero", "loop": file, "gone": "gone"}[kind])
    with pytest.raises(ValueError, match=rf"saved/{re.escape(file)} {said}; it cannot be a model's file\.$"):
        measured(saved)


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json"])
def test_a_text_without_end_is_named_and_not_read(saved, file):
    with open(saved / file, "wb") as text:
        text.truncate(2**40)  # takes no room
    with pytest.raises(ValueError, match=rf"saved/{re.escape(file)} has 1,099,511,627,776 bytes; at most 268,435,456"):
        measured(saved)


@pytest.mark.parametrize("layers", [10**9, 0, "two"])
def test_a_number_of_layers_that_no_model_has_is_refused_at_once(saved, layers):
    reconfigure(saved, num_hidden_layers=layers)
    said = re.escape(
        f"config.json of mine says num_hidden_layers is {layers!r}; it must be a whole number from 1 to 1000."
    )
    with pytest.raises(ValueError, match=rf"^{said}$"):
        measured(saved)


@pytest.mark.parametrize("key", ["hidden_size", "intermediate_size", "vocab_size"])
def test_a_size_that_is_not_that_of_the_files_is_refused_before_memory_is_taken(saved, key):
    reconfigure(saved, **{key: 2**36})
    with pytest.raises(ValueError, match=r"^The files of mine have in another shape |^config\.json of mine does not"):
        measured(saved)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"hidden_act": "none of them"}, r"^config\.json of mine does not describe a llama model: "),
        ({"num_attention_heads": 0}, r"^config\.json of mine does not describe a llama model: "),
        ({"rms_norm_eps": float("nan")}, r"^mine computes numbers that are not finite in float32; "),
        (
            {"rope_parameters": {"rope_theta": -1187.0, "rope_type": "default"}},
            r"^mine computes numbers that are not finite in float32; ",
        ),
    ],
)
def test_a_config_with_which_nothing_can_be_computed_is_refused(saved, settings, said):
    reconfigure(saved, **settings)
    with pytest.raises(ValueError, match=said):
        measured(saved)


@pytest.mark.parametrize(
    "settings",
    [
        {"attn_implementation": "kernels-community/some-attention"},
        {"_attn_implementation": {"": "sdpa", "text_config": "owner/some-attention"}},
        {"text_config": {"experts_implementation": "owner/some-experts"}},
    ],
)
def test_a_config_that_names_code_on_the_hub_is_refused(saved, settings):
    reconfigure(saved, **settings)
    with pytest.raises(ValueError, match=r"^config.json of mine says \w+_implementation is .*; code that comes with a"):
        measured(saved)


def test_a_config_that_names_an_attention_of_the_library_is_loaded(saved):
    reconfigure(saved, attn_implementation="sdpa")
    measured(saved)


def test_a_tokenizer_with_a_setting_of_another_kind_is_refused(saved):
    file = saved / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | {"model_max_length": [1]}))
    with pytest.raises(ValueError, match=r"^The tokenizer of mine cannot be loaded: "):
        load_tokenizer(saved, "mine")


def test_shards_without_their_index_are_refused(saved):
    (saved / "model.safetensors").rename(saved / "model-00001-of-00002.safetensors")
    with pytest.raises(ValueError, match=r"^The files of mine cannot be loaded: "):
        measured(saved)
