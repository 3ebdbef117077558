"""A loaded model is the one that was saved, however its weights lie in memory."""

import torch
from torch import nn

from anchorscope.models.fetch import fetch_model
from anchorscope.models.loading import load_model
from anchorscope.models.manifest import Manifest
from rounding import assert_same, of_a_pass
from small_run import save_model
from small_things import tiny_model


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
