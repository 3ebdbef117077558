"""A model given as a config with random weights: what is fetched, what is loaded, and the published shapes."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerBase

from anchorscope.answer.answers import answer_questions
from anchorscope.answer.prompts import few_shot_prompt
from anchorscope.engine.door import Engine
from anchorscope.models.describe import describe
from anchorscope.models.fetch import fetch
from anchorscope.models.loading import load_model, load_tokenizer, random_model
from anchorscope.models.manifest import Manifest, salmon_of
from small_things import ROOT, tiny_model

SHAPES = ROOT / "workflow/resources/shapes"


def fetched(folder: Path, beside: PreTrainedTokenizerBase | None, seed: int = 0, **changes: object) -> Manifest:
    """The manifest of a tiny config with random weights, fetched from a folder with the tokenizer `beside` it."""
    config = tiny_model("qwen3", 50_000, layers=2).config.to_dict() | changes
    folder.mkdir(exist_ok=True)
    if beside:
        beside.save_pretrained(folder)
    (folder / "shape.json").write_text(json.dumps(config))
    source = {"random": {"config": str(folder / "shape.json"), "seed": seed}}
    target = folder / f"model-{seed}"
    fetch(source, target)
    return describe(target, "shape", source)


def weights(manifest: Manifest, dtype: str = "float32") -> dict[str, torch.Tensor]:
    return load_model(manifest, dtype, threads=1).state_dict()


def test_the_same_config_and_seed_give_the_same_weights_and_another_seed_gives_others(tmp_path, few_tokens):
    first = fetched(tmp_path / "a", few_tokens, seed=0)
    again, other = (fetched(tmp_path / "b", few_tokens, seed) for seed in (0, 1))
    assert first.weights == "random"
    assert first.revision == again.revision
    one, two, three = weights(first), weights(again), weights(other)
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not torch.equal(one["model.embed_tokens.weight"], three["model.embed_tokens.weight"])


def test_the_revision_is_of_the_config_and_the_seed(tmp_path, few_tokens):
    first, other = (fetched(tmp_path, few_tokens, seed, rms_norm_eps=1e-5) for seed in (0, 1))
    edited = fetched(tmp_path / "edited", few_tokens, rms_norm_eps=1e-6)
    assert len({manifest.revision for manifest in (first, other, edited)}) == 3


def test_a_salmon_has_its_models_config_and_tokenizer_and_the_weights_of_seed_0(tmp_path, few_tokens):
    tiny_model("qwen3", len(few_tokens), layers=2, seed=1).save_pretrained(tmp_path)
    few_tokens.save_pretrained(tmp_path)
    trained = describe(tmp_path, "mine", {"path": str(tmp_path)})
    salmon = salmon_of(trained)
    assert (salmon.name, salmon.weights) == ("mine+salmon", "random")
    same = ("path", "tokenizer", "architecture", "layers", "width", "parameters")
    assert all(getattr(salmon, name) == getattr(trained, name) for name in same)
    assert salmon.revision != trained.revision
    drawn, expected = weights(salmon), tiny_model("qwen3", len(few_tokens), layers=2, seed=0).state_dict()
    assert all(torch.equal(drawn[name], expected[name]) for name in expected)
    learnt = weights(trained)
    assert not torch.equal(drawn["model.embed_tokens.weight"], learnt["model.embed_tokens.weight"])


def test_it_is_loaded_like_any_other_model_in_the_dtype_asked_for(tmp_path, few_tokens):
    model = load_model(fetched(tmp_path, few_tokens), "bfloat16", threads=1)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert model.config._attn_implementation == "sdpa"


def test_the_weights_are_made_on_the_device_asked_for_and_not_moved_there(tmp_path):
    """65 GB of weights would not fit into memory here; on the meta device they take none."""
    (tmp_path / "config.json").write_bytes((SHAPES / "qwen3-32b.json").read_bytes())
    model = random_model(tmp_path, seed=0, dtype=torch.bfloat16, device=torch.device("meta"))
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
    assert sum(parameter.nbytes for parameter in model.parameters()) > 65e9


def test_no_weights_are_written_and_without_a_tokenizer_there_is_a_spare_one(tmp_path, tokenizer):
    folder = Path(fetched(tmp_path, None).path)
    assert {file.name for file in folder.iterdir()} <= {
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "chat_template.jinja",
    }
    loaded = load_tokenizer(folder, "shape")
    assert loaded.backend_tokenizer.to_str() == tokenizer.backend_tokenizer.to_str()
    assert loaded.chat_template == tokenizer.chat_template


def test_the_tokenizer_beside_the_config_is_taken(tmp_path, tokenizer):
    fewer = tokenizer.train_new_from_iterator(["who wrote the play", "where is the river"], vocab_size=300)
    manifest = fetched(tmp_path, fewer)
    assert load_tokenizer(manifest.path, manifest.name).get_vocab() == fewer.get_vocab() != tokenizer.get_vocab()


def test_a_tokenizer_with_more_ids_than_the_vocabulary_is_refused_in_one_sentence(tmp_path, tokenizer):
    with pytest.raises(ValueError, match=r"has ids up to 49151, but the model has embeddings for 49151 only"):
        fetched(tmp_path, tokenizer, vocab_size=len(tokenizer) - 1)
    fetched(tmp_path / "fits", tokenizer, vocab_size=len(tokenizer))


def test_it_answers_although_its_tokens_and_its_end_of_text_lie_beyond_the_tokenizer(tmp_path, tokenizer):
    """Most of what it says has no text, and it cannot say its end-of-text token at all."""
    manifest = fetched(tmp_path, tokenizer, vocab_size=150_000, eos_token_id=150_001)
    question = {"id": "q", "question": "who is it", "gold": ["he"], "subject": None, "popularity": None, "spans": []}
    prompt = few_shot_prompt([{"question": "who was it", "answer": "she"}])
    model = load_model(manifest, "float32", threads=1)
    (row,) = answer_questions(Engine(model), tokenizer, prompt, questions=[question], max_new_tokens=8).to_pylist()
    assert 1 <= len(row["generated_ids"]) <= 8
    assert max(row["generated_ids"]) >= len(tokenizer)


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("llama-3.2-1b", 1.24),
        ("llama-3.2-3b", 3.21),
        ("llama-3-8b", 8.03),
        ("llama-3-70b", 70.55),
        ("mistral-7b-v0.1", 7.24),
        ("mistral-7b-v0.3", 7.25),
        ("qwen3-8b", 8.19),
        ("qwen3-32b", 32.76),
    ],
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
