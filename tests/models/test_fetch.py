"""What a model's folder may hold, and what is never done with it."""

import copy
import json
import os
import shutil
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from anchorscope.models.chat_template import prompt_style_of
from anchorscope.models.describe import check_config, describe
from anchorscope.models.fetch import fetch, fetch_model
from anchorscope.models.gguf import CHUNK, dequantise, reading_gguf_fast
from anchorscope.models.loading import load_fetched_tokenizer, load_model, load_tokenizer
from anchorscope.models.manifest import Manifest, hashes_of, revision_of, source_of
from anchorscope.models.sizes import parameters
from architectures import LAYERS, WIDTH, small_image_model
from gguf_file import write_gguf
from rounding import assert_same, of_a_pass
from small_things import FAMILIES, tiny_model

CODE = """
from pathlib import Path
Path({marker!r}).touch()
from transformers import LlamaConfig as Config, LlamaForCausalLM as Model
"""


def with_code(folder: Path, model_type: str) -> Path:
    """Add code that leaves a file when it is run, and a config that asks for the code. Returns that file's path."""
    marker = folder.parent / "the code was run"
    (folder / "own.py").write_text(CODE.format(marker=str(marker)))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
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


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("mamba", r"^mine is a mamba model, which has no attention that could be cut; "),
        ("rwkv", r"^mine is a rwkv model, which has no attention that could be cut; "),
        ("t5", r"^mine is a t5 model, which transformers does not list as a causal language model; "),
    ],
)
def test_what_a_config_tells_is_refused_without_any_weights(kind, said, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    with pytest.raises(ValueError, match=said):
        check_config(tmp_path, "mine")


@pytest.mark.parametrize("kind", ["gemma3", "qwen2_5_vl"])
def test_a_model_for_images_is_loaded_whole_and_described_by_its_text_model(kind, tmp_path, few_tokens):
    model = small_image_model(kind, vocabulary=len(few_tokens))
    model.save_pretrained(tmp_path / "saved")
    few_tokens.save_pretrained(tmp_path / "saved")
    source = {"path": str(tmp_path / "saved")}
    fetch(source, tmp_path / "fetched")
    manifest = describe(tmp_path / "fetched", "mine", source)
    assert (manifest.layers, manifest.width) == (LAYERS, WIDTH)
    assert manifest.parameters == sum(weight.numel() for weight in model.parameters())
    loaded = load_model(manifest, "float32", threads=1)
    ids = torch.arange(5, 25)[None]
    with torch.inference_mode():
        found, expected = (some(input_ids=ids).logits for some in (loaded, model))
    assert_same(found, expected, of_a_pass(model, ids.numel(), expected))


CHAT = "{% for turn in messages %}<|im_start|>{{ turn.content }}<|im_end|>\n{% endfor %}"


@pytest.mark.parametrize(
    ("template", "ends", "style"),
    [
        (CHAT, "<|im_end|>", "chat"),
        (CHAT, "<|endoftext|>", "few_shot"),  # a base model with the template of its tuned sibling
        (None, "<|im_end|>", "few_shot"),
        ("{{ raise_exception('no') }}", "<|im_end|>", "few_shot"),
    ],
)
def test_the_prompt_of_a_model_that_was_tuned_is_its_chat_template(template, ends, style, saved, tmp_path, tokenizer):
    own = copy.deepcopy(tokenizer)
    own.chat_template, own.eos_token = template, ends
    tiny_model("llama", len(own), layers=2).save_pretrained(saved)
    for file in [*saved.glob("*.jinja"), saved / "generation_config.json"]:
        file.unlink(missing_ok=True)
    own.save_pretrained(saved)
    config = json.loads((saved / "config.json").read_text(encoding="utf-8"))
    (saved / "config.json").write_text(json.dumps(config | {"eos_token_id": own.eos_token_id}))
    fetch({"path": str(saved)}, tmp_path / "fetched")
    assert describe(tmp_path / "fetched", "mine", {"path": str(saved)}).prompt == style
    assert prompt_style_of(AutoModelForCausalLM.from_pretrained(saved), own) == style, "the same of a model in memory"


def test_a_tokenizer_that_cannot_say_where_its_tokens_stand_is_refused(saved):
    for file in saved.glob("tokenizer*"):
        file.unlink()
    (saved / "vocab.json").write_text(json.dumps({"<unk>": 0, "a</w>": 1, "b</w>": 2}))
    (saved / "merges.txt").write_text("#version: 0.2\n")
    (saved / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "CTRLTokenizer"}))
    with pytest.raises(
        ValueError, match=r"^The tokenizer of mine has no offset mapping \(tokenizer\.json is missing\)"
    ):
        load_tokenizer(saved, "mine")


def test_a_cache_that_was_cleared_is_noticed_and_the_command_that_helps_is_named(saved, tmp_path):
    fetch({"path": str(saved)}, tmp_path / "fetched")
    manifest = describe(tmp_path / "fetched", "mine", {"path": str(saved)})
    (saved / "model.safetensors").unlink()
    with pytest.raises(
        FileNotFoundError,
        match=r"^model\.safetensors in .* gone .* `snakemake --cores all --force results/models/mine\.json`",
    ):
        load_tokenizer(manifest.path, manifest.name)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("stored", ["once", "twice"])
def test_the_manifest_counts_every_weight_once(family, stored, tmp_path, few_tokens):
    model = tiny_model(family, len(few_tokens), layers=2)
    model.save_pretrained(tmp_path / "saved")
    few_tokens.save_pretrained(tmp_path / "saved")
    if stored == "twice":  # as some publishers do where the head is the embedding
        embedding = {"lm_head.weight": model.get_input_embeddings().weight.detach().clone()}
        save_file(embedding, tmp_path / "saved/head.safetensors")
    source = {"path": str(tmp_path / "saved")}
    fetch(source, tmp_path / "fetched")
    manifest = describe(tmp_path / "fetched", "mine", source)
    assert manifest.parameters == sum(weight.numel() for weight in model.parameters())
    assert manifest.parameters == parameters(model.config)


def test_a_manifest_is_read_back_as_it_was_written(saved, tmp_path):
    fetch_model("mine", source={"path": str(saved)}, folder=tmp_path / "fetched", manifest=tmp_path / "mine.json")
    text = (tmp_path / "mine.json").read_text(encoding="utf-8")
    manifest = Manifest.read(tmp_path / "mine.json")
    assert manifest == describe(tmp_path / "fetched", "mine", {"path": str(saved)})
    assert json.loads(text) == manifest.as_json()
    assert (manifest.name, manifest.weights, manifest.layers, manifest.width) == ("mine", "trained", 2, 32)
    assert list(json.loads(text)) == sorted(manifest.as_json()), "keys in one order"


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
    source, folder = {"path": str(saved)}, tmp_path / "fetched"
    weights = saved / "model.safetensors"
    (saved / "more.safetensors").write_bytes(weights.read_bytes())
    fetch(source, folder)
    reads.clear()
    plain = revision_of(folder, source)
    assert sorted(reads) == ["model.safetensors", "more.safetensors"]
    reads.clear()
    assert revision_of(folder, source) == plain
    assert reads == []

    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    os.utime(weights, ns=(0, 1))
    reads.clear()
    changed = revision_of(folder, source)
    assert reads == ["model.safetensors"], "the other one is remembered"
    hashes_of(folder).unlink()
    assert changed == revision_of(folder, source) != plain


@pytest.mark.parametrize("content", ["", "{", "[]", '{"NAME": 1}', '{"NAME": [1, 2]}', '{"NAME": [0, 0, 0, 0, "x"]}'])
def test_damaged_memories_of_hashes_are_ignored(saved, content):
    source, hashes = {"path": str(saved)}, hashes_of(saved)
    plain = revision_of(saved, source)
    hashes.write_text(content.replace("NAME", str((saved / "model.safetensors").resolve())))
    assert revision_of(saved, source) == plain
    assert len(json.loads(hashes.read_text(encoding="utf-8"))) == 1, "and written anew"


def test_hashes_that_cannot_be_kept_stop_nothing(saved):
    source = {"path": str(saved)}
    plain = revision_of(saved, source)
    shutil.rmtree(hashes_of(saved).parent)
    hashes_of(saved).parent.touch()
    assert revision_of(saved, source) == plain


def test_weights_that_changed_after_they_were_fetched_are_refused(saved, tmp_path, few_tokens):
    fetch({"path": str(saved)}, tmp_path / "fetched")
    manifest = describe(tmp_path / "fetched", "mine", {"path": str(saved)})
    tiny_model("llama", len(few_tokens), layers=2, seed=1).save_pretrained(saved)
    said = r"^The weights of mine changed after .* `snakemake --cores all --force results/models/mine\.json`"
    with pytest.raises(ValueError, match=said):
        load_model(manifest, "float32", threads=1)


def test_a_tokenizer_that_changed_after_it_was_fetched_is_refused(saved, tmp_path):
    fetch({"path": str(saved)}, tmp_path / "fetched")
    manifest = describe(tmp_path / "fetched", "mine", {"path": str(saved)})
    assert load_fetched_tokenizer(manifest).is_fast
    content = json.loads((saved / "tokenizer.json").read_text(encoding="utf-8"))
    content["normalizer"] = {"type": "Lowercase"}
    (saved / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"^The tokenizer of mine changed after it was fetched \("):
        load_fetched_tokenizer(manifest)


@pytest.mark.parametrize(
    ("family", "says", "added"), [("llama", None, 0), ("llama", False, 0), ("llama", True, 1), ("gemma3", None, 1)]
)
def test_texts_begin_with_a_beginning_of_text_token_where_the_model_was_trained_so(
    family, says, added, tmp_path, tokenizer
):
    tiny_model(family, len(tokenizer), layers=2).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text(encoding="utf-8"))
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps(settings | ({} if says is None else {"add_bos_token": says}))
    )
    loaded = load_tokenizer(tmp_path, "mine")
    plain = tokenizer("who wrote emma")["input_ids"]
    assert loaded("who wrote emma")["input_ids"] == [tokenizer.bos_token_id] * added + plain
    assert loaded("who wrote emma", add_special_tokens=False)["input_ids"] == plain


def test_what_a_gguf_file_holds_is_read_once_while_it_is_converted(tmp_path, tokenizer):
    file = write_gguf(tmp_path / "mine.gguf", tiny_model("llama", len(tokenizer), layers=2))
    plain = gguf.GGUFReader, gguf.get_tensor_name_map, gguf.dequantize
    with reading_gguf_fast():
        names = [gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2) for _ in range(2)]
        readers = [gguf.GGUFReader(file) for _ in range(2)]
    assert names[0] is names[1]
    assert readers[0] is readers[1]
    assert (gguf.GGUFReader, gguf.get_tensor_name_map, gguf.dequantize) == plain


@pytest.mark.filterwarnings("ignore:invalid value")  # some scales are infinite or not a number
@pytest.mark.parametrize("kind", ["BF16", "Q4_0", "Q4_1", "Q5_1", "Q8_0", "Q2_K", "Q4_K", "Q6_K", "IQ4_XS"])
def test_packed_weights_become_the_numbers_that_the_formats_own_library_makes_of_them(kind):
    packing = gguf.GGMLQuantizationType[kind]
    block, block_bytes = gguf.GGML_QUANT_SIZES[packing]
    rows, blocks = 5, CHUNK // block // 3  # so that the last chunk is shorter than the others
    packed = np.random.default_rng(0).integers(0, 256, (rows, blocks * block_bytes), dtype=np.uint8)
    dense, expected = dequantise(packed, packing, threads=2), gguf.dequantize(packed, packing)
    assert dense.shape == expected.shape == (rows, blocks * block)
    assert dense.tobytes() == expected.tobytes()


def test_a_gguf_file_of_ones_own_becomes_the_model_and_tokenizer_that_it_holds(tmp_path, tokenizer):
    model = tiny_model("llama", len(tokenizer), layers=2)
    file = write_gguf(tmp_path / "mine.gguf", model)
    fetch_model("mine", {"path": str(file)}, folder=tmp_path / "models/mine", manifest=tmp_path / "mine.json")
    manifest = Manifest.read(tmp_path / "mine.json")
    assert (manifest.weights, manifest.layers, manifest.source) == ("trained", 2, {"path": str(file)})
    loaded = load_model(manifest, "float32", threads=1)
    for name, weight in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], weight), name
    text = "Who wrote “Le Père Goriot”?"
    assert load_fetched_tokenizer(manifest)(text)["input_ids"] == tokenizer(text)["input_ids"]


def test_a_gguf_file_unpacked_in_half_precision_takes_half_the_room_and_is_the_same_model_in_it(tmp_path, tokenizer):
    file = write_gguf(tmp_path / "mine.gguf", tiny_model("llama", len(tokenizer), layers=2))
    loaded, sizes = [], []
    for dtype in ("float32", "bfloat16"):
        source = source_of({"path": str(file), "dtype": dtype})
        folder = tmp_path / dtype
        fetch_model("mine", source, folder=folder, manifest=tmp_path / f"{dtype}.json")
        manifest = Manifest.read(tmp_path / f"{dtype}.json")
        assert manifest.stored_dtype == dtype
        loaded.append(load_model(manifest, "bfloat16", threads=1).state_dict())
        stored = [one for part in folder.glob("*.safetensors") for one in load_file(part).values()]
        sizes.append(sum(weight.nbytes for weight in stored))
    assert sizes[0] == 2 * sizes[1]
    for name, weight in loaded[0].items():
        assert torch.equal(loaded[1][name], weight), name


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (
            lambda path, model: path.write_bytes(b"not a GGUF file"),
            r"mine\.gguf cannot be converted; give a folder with .* instead: ",
        ),
        (lambda path, model: write_gguf(path, model, left_out="layers.1.mlp.up"), r"The files of mine\.gguf lack "),
    ],
    ids=["no GGUF", "a weight left out"],
)
def test_a_gguf_file_that_cannot_be_converted_is_one_sentence(break_it, said, tmp_path, tokenizer):
    file = tmp_path / "mine.gguf"
    break_it(file, tiny_model("llama", len(tokenizer), layers=2))
    with pytest.raises(ValueError, match=said) as caught:
        fetch({"path": str(file)}, tmp_path / "fetched")
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "fetched").iterdir())
