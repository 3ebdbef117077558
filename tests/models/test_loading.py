"""A loaded model is the one that was saved, however its weights lie in memory."""

import json

import pytest
import torch
from tokenizers import Tokenizer
from torch import nn
from transformers import PreTrainedTokenizerFast

from anchorscope.models.fetch import fetch_model
from anchorscope.models.loading import load_model
from anchorscope.models.manifest import Manifest, tokenizer_hash
from rounding import assert_same, of_a_pass
from small_run import save_model
from small_things import small_tokenizer, tiny_model


def test_weights_are_turned_in_memory_and_not_in_meaning(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    save_model(tmp_path / "weights", tokenizer, seed=0)
    fetch_model("tiny", {"path": str(tmp_path / "weights")}, tmp_path / "tiny", tmp_path / "tiny.json")
    manifest, saved = Manifest.read(tmp_path / "tiny.json"), tiny_model("llama", len(tokenizer), layers=2)
    model = load_model(manifest, "float32", threads=1)
    assert all(torch.equal(mine, other) for mine, other in zip(model.parameters(), saved.parameters(), strict=True))
    inside = [module.weight for module in model.model.modules() if isinstance(module, nn.Linear)]
    assert len(inside) == 2 * 7
    assert all(weight.stride() == (1, weight.shape[0]) for weight in inside)
    assert model.get_input_embeddings().weight.is_contiguous(), "rows are looked up"
    assert model.get_output_embeddings().weight.is_contiguous()
    tokens = torch.tensor([tokenizer("Who wrote Emma?")["input_ids"]])
    with torch.inference_mode():
        found, expected = (some(tokens).logits for some in (model, saved))
    assert_same(found, expected, of_a_pass(saved, tokens.numel(), expected))
    half = load_model(manifest, "bfloat16", threads=1)
    assert all(parameter.is_contiguous() for parameter in half.parameters())


def rewritten(**changes) -> PreTrainedTokenizerFast:
    """A small tokenizer with parts of its description replaced; those of its model are merged."""
    described = json.loads(small_tokenizer().backend_tokenizer.to_str())
    described["model"] |= changes.pop("model", {})
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps({**described, **changes})))


BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
MODEL = json.loads(small_tokenizer().backend_tokenizer.to_str())["model"]


@pytest.mark.parametrize(
    "written",
    [
        {"decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}, BYTES]}},
        {"normalizer": {"type": "Sequence", "normalizers": []}},
        {"model": {"continuing_subword_prefix": "", "end_of_word_suffix": ""}},
    ],
)
def test_a_tokenizer_that_another_version_describes_in_other_words_is_the_same(written):
    """Transformers 5.17 and 5.22 differ in these ways in what they make of one GGUF file."""
    other = rewritten(**written)
    assert other.backend_tokenizer.to_str() != small_tokenizer().backend_tokenizer.to_str()
    assert tokenizer_hash(other) == tokenizer_hash(small_tokenizer())


@pytest.mark.parametrize(
    "changed",
    [
        {"model": {"merges": MODEL["merges"][:-1]}},
        {"model": {"vocab": {**MODEL["vocab"], "one more": len(MODEL["vocab"])}}},
        {"normalizer": {"type": "Lowercase"}},
        {"pre_tokenizer": {**BYTES, "add_prefix_space": False}},
        {"added_tokens": []},
    ],
    ids=["a merge less", "a token more", "lower case", "no space before", "no special tokens"],
)
def test_a_tokenizer_that_reads_texts_otherwise_is_another(changed):
    assert tokenizer_hash(rewritten(**changed)) != tokenizer_hash(small_tokenizer())
