"""What keeps the engine honest: memory that runs out, numbers that are not finite, models it cannot pack or run."""

import ast
import logging
import re
import sys

import numpy as np
import pytest
import torch
from transformers import (
    AttentionInterface,
    GptOssConfig,
    GptOssForCausalLM,
    Qwen3ForCausalLM,
)
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from anchorscope.engine.batches import run_batches
from anchorscope.engine.door import Engine
from anchorscope.engine.packing import Pack
from anchorscope.engine.packs import Outline, _padded, grow_tree, packed_attention
from anchorscope.engine.parts import check_components, find_parts
from anchorscope.engine.self_check import choose_path, shortest_window, without_middle
from anchorscope.extract.axes import PASSES
from anchorscope.extract.job import run_workload, writing
from anchorscope.extract.sequences import build_workload
from anchorscope.extract.store import ActivationReader, ActivationWriter
from anchorscope.fingerprint import PACKAGE, reachable, read_sources
from architectures import small_model
from engines import check_fused
from few_examples import examples, forest, prompts
from reference import plain_attention
from rounding import assert_same, of_a_pass, of_sums
from small_things import FAMILIES, tiny_model


def test_each_branch_alone_as_a_causal_sequence_is_the_tree_under_its_mask():
    """The GPU's kernel of ragged sequences gets these key places; here each is attended to in a plain loop."""
    prefix, heads, sharers, width = 7, 2, 3, 8
    pack = Pack([grow_tree(sequences, np.arange(prefix)) for sequences in forest(4, prefix)], prefix)
    torch.manual_seed(0)
    query = torch.randn(len(pack.tokens), heads * sharers, width)
    keys, values = (torch.randn(prefix + len(pack.tokens), heads, width) for _ in range(2))
    placed = pack.on(torch.device("cpu"))
    found = plain_attention(query, keys, values, placed.ragged, scale=0.3)
    assert placed.ragged.most_queries == placed.ragged.query_bounds.diff().max()
    assert len(placed.padded) > 1, "all trees are of one size"
    parts = [
        _padded(query, keys, values, group=group, mask=group.mask(None), scaling=0.3, softcap=None)
        for group in placed.padded
    ]
    # A score adds up a head's width, a softmax the keys, and so does what it weighs; a score moves weights as far.
    largest = 0.3 * float(query.norm(dim=-1).max() * keys.norm(dim=-1).max()) * float(values.abs().max())
    most_keys = int(placed.ragged.key_counts.max())
    assert_same(torch.cat(parts)[placed.back], found, of_sums(width + 2 * most_keys, largest, np.float32))


@pytest.mark.parametrize("copies", [None, 3])
def test_the_size_of_a_tree_is_known_before_it_is_grown(copies):
    for sequences in forest(4, 9):
        for known in (0, 5, 9):
            assert Outline(sequences, known, copies).size == grow_tree(sequences, np.arange(known), copies).size


def activations(model, tokenizer, path, batch_tokens=4096):
    with ActivationWriter(path, layers=4, width=32, dtype=torch.float32, made_from={}) as writer:
        workload = build_workload(tokenizer, prompts(), examples(tokenizer))
        run_workload(Engine(model, batch_tokens), workload, writer)
    return ActivationReader([path])


def test_a_batch_that_does_not_fit_is_halved_remembered_and_logged(tokenizer, tmp_path, caplog):
    model = tiny_model("llama", len(tokenizer))
    expected = activations(model, tokenizer, tmp_path / "whole.parquet")
    sizes = []

    def short_of_memory(module, args, kwargs):
        pack = kwargs.get("pack")
        if pack is not None and any(len(tree.branches) > 2 for tree in pack.trees):  # a batch, and not the trial
            tokens = len(pack.tokens)
            sizes.append(tokens)
            if tokens > 120:
                raise torch.OutOfMemoryError("no memory for this test")

    model.get_decoder().register_forward_pre_hook(short_of_memory, with_kwargs=True)
    with caplog.at_level(logging.WARNING, logger="anchorscope"):
        found = activations(model, tokenizer, tmp_path / "halved.parquet")
    assert [key["id"] for key in found.keys] == [key["id"] for key in expected.keys]
    for run in PASSES:
        read = [part.read("resid", "final", *run, layers=range(4)) for part in (found, expected)]
        assert_same(*read, of_a_pass(model, 256, read[0]))  # no sequence has more tokens
    assert sizes[0] > 120
    assert "out of memory at" in caplog.text
    failures = [size > 120 for size in sizes]
    assert not any(failures[failures.index(False) :]), "a size that failed is not tried again"


def test_an_example_that_never_fits_is_one_sentence():
    def run(batch):
        raise torch.OutOfMemoryError

    with pytest.raises(MemoryError, match="A single example of 30 tokens does not fit into memory"):
        run_batches(run, [10, 30], budget=64)


def test_a_failed_allocation_on_the_host_counts_as_out_of_memory_and_other_errors_do_not():
    done = []

    def run(batch):
        if len(batch) > 1:
            torch.empty(2**60)
        done.extend(batch)

    run_batches(run, [8] * 5, budget=64)
    assert sorted(done) == list(range(5))
    with pytest.raises(RuntimeError, match="size of tensor"):
        run_batches(lambda batch: torch.ones(2) + torch.ones(3), [8] * 5, budget=64)


def test_a_number_that_is_not_finite_stops_the_job_and_is_named(tokenizer, tmp_path):
    model = tiny_model("llama", len(tokenizer))
    model.get_decoder().layers[2].mlp.down_proj.weight[0, 0] = torch.nan
    with pytest.raises(ValueError, match=r"example q\d is not finite in layer 2, component mlp"):
        activations(model, tokenizer, tmp_path / "a.parquet")


def test_what_the_writing_thread_raises_is_raised_in_the_job():
    class FullDisk:
        def add(self, keys, block):
            raise OSError("No space left on device")

    def fill():
        with writing(FullDisk()) as write:
            for _ in range(10):
                write([{"id": "a"}], [torch.zeros(1)])

    with pytest.raises(OSError, match="No space left"):
        fill()


@pytest.mark.parametrize("family", FAMILIES)
def test_fused_parts_compute_the_same_and_only_where_they_do(family):
    check_fused(tiny_model(family, 500), gated=family in ("llama", "qwen3", "mistral"))


def small_gpt_oss() -> GptOssForCausalLM:
    config = GptOssConfig(
        vocab_size=500,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        num_local_experts=2,
        num_experts_per_tok=1,
        sliding_window=128,
    )
    model = GptOssForCausalLM(config).eval().requires_grad_(False)
    for layer in model.get_decoder().layers:
        layer.self_attn.sinks.fill_(3.0)  # a learnt score that every query also attends to
    return model


def test_a_model_whose_attention_has_more_to_it_takes_the_plain_path_and_the_log_says_so(caplog):
    with caplog.at_level(logging.WARNING, logger="anchorscope"):
        path = choose_path(small_gpt_oss(), list(range(30)), 10)
    assert (path.name, path.attention) == ("plain", "eager")
    assert re.search(r"^gpt_oss models run on the plain path, .* \(eager\), which is slower: ", caplog.messages[0])
    assert choose_path(tiny_model("qwen3", 500), list(range(30)), 10).name == "packed"
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("ids", [[7], [7, 8], [7, 8, 9], [7, 8, 9, 10]])
def test_the_shortest_sequences_can_be_tried_too(ids):
    assert choose_path(tiny_model("llama", 500), ids, 0).name == "packed"


def test_attention_that_goes_around_its_mask_is_noticed():
    """Half of the heads' scores become weights where nobody can meet them, as in a kernel of its own."""
    model = tiny_model("llama", 500)

    def attend(module, query, key, value, mask, scaling, **others):
        own, _ = sdpa_attention_forward(module, query, key, value, mask, scaling=scaling)
        key, value = (states.repeat_interleave(2, dim=1) for states in (key, value))
        scores = (query @ key.transpose(2, 3) * scaling).exp().tril()
        own[:, :, 2:] = (scores / scores.sum(dim=-1, keepdim=True) @ value).transpose(1, 2)[:, :, 2:]
        return own, None

    AttentionInterface.register("around", attend)
    model.set_attn_implementation("around")
    type(model)._can_set_attn_implementation = classmethod(lambda kind: False)
    try:
        with pytest.raises(
            ValueError, match=r"^This llama model .*: tokens that are cut still reach others in layers 0, 1, 2"
        ):
            choose_path(model, list(range(30)), 10)
    finally:
        del type(model)._can_set_attn_implementation


def test_a_model_without_attention_is_refused_in_one_sentence():
    model = small_model("mamba")
    with pytest.raises(ValueError, match=r"^This mamba model cannot be measured: no attention was found in it .*\.$"):
        choose_path(model, list(range(30)), 10)


def test_a_model_that_looks_ahead_is_refused_in_one_sentence():
    model = small_model("bert")
    for module in model.modules():
        if hasattr(module, "is_causal"):
            module.is_causal = False
    model.config.is_decoder = False
    with pytest.raises(ValueError, match=r"^This bert model cannot be measured: tokens see those that follow them "):
        choose_path(model, list(range(30)), 10)


def test_a_component_that_a_layer_lacks_is_refused_in_one_sentence(tokenizer, tmp_path):
    path = choose_path(small_model("jamba"), list(range(30)), 10)
    said = r"^jamba models have no attn in layers 0, 2; leave it out of `components`"
    with pytest.raises(ValueError, match=said):
        check_components(path.parts, ["resid", "attn"], "jamba")
    check_components(path.parts, ["resid", "mlp"], "jamba")


def test_a_trial_is_without_the_middle_of_a_long_prefix_unless_a_layer_sees_less_than_all():
    ids = list(range(300))
    assert without_middle(ids, shared=200) == ([0, *range(169, 300)], 32)  # 1 and 31 tokens of the prefix
    assert without_middle(ids, shared=32) == (ids, 32)
    assert shortest_window(tiny_model("llama", 500).config) == float("inf")
    windowed = tiny_model("mistral", 500).config
    windowed.sliding_window = 128
    assert shortest_window(windowed) == 128


# Where they are, by the names that the models' own code gives them.
NAMED = {
    "llama": ("model.layers.0", "self_attn", "self_attn.o_proj", "mlp"),
    "gpt2": ("transformer.h.0", "attn", "attn.c_proj", "mlp"),
    "gpt_neox": ("gpt_neox.layers.0", "attention", "attention.dense", "mlp"),
    "gptj": ("transformer.h.0", "attn", "attn.out_proj", "mlp"),
    "opt": ("model.decoder.layers.0", "self_attn", "self_attn.out_proj", "fc2"),
    "falcon": ("transformer.h.0", "self_attention", "self_attention.dense", "mlp"),
    "bloom": ("transformer.h.0", "self_attention", "self_attention.dense", "mlp.dense_4h_to_h"),
    "mpt": ("transformer.blocks.0", "attn", "attn.out_proj", "ffn.down_proj"),
    "phi": ("model.layers.0", "self_attn", "self_attn.dense", "mlp"),
    "deepseek_v3": ("model.layers.0", "self_attn", "self_attn.o_proj", "mlp"),
    "llama4_text": ("model.layers.0", "self_attn", "self_attn.o_proj", "feed_forward"),
    "gemma3n_text": ("model.layers.0", "self_attn", "self_attn.o_proj", "mlp"),
    "bert": ("bert.encoder.layer.0", "attention", "attention.output.dense", "output.dense"),
}


@pytest.mark.parametrize("kind", NAMED)
def test_parts_are_found_without_knowing_their_names(kind):
    model = small_model(kind)
    block, *inside = NAMED[kind]
    found = find_parts(model).blocks[0]
    assert found.module is model.get_submodule(block)
    assert [found.attention, found.attention_out, found.mlp] == [found.module.get_submodule(name) for name in inside]


def test_a_model_is_left_as_it_was():
    model = tiny_model("qwen3", 500)
    with packed_attention(model):
        assert model.config._attn_implementation == "anchorscope"
    assert model.config._attn_implementation == "sdpa"
    assert isinstance(model, Qwen3ForCausalLM)
    assert model(torch.arange(5)[None]).logits.isfinite().all()


def test_sequences_are_the_same_whatever_the_order_of_the_prompts(tokenizer):
    rows = examples(tokenizer)
    backwards = dict(reversed(prompts().items()))
    found, expected = (build_workload(tokenizer, some, rows) for some in (backwards, prompts()))
    for some, other in zip(found.sequences, expected.sequences, strict=True):
        for sequence, same in zip(some, other, strict=True):
            assert (sequence.ids == same.ids).all()
            assert (sequence.cut, sequence.read) == (same.cut, same.read)


def test_the_commands_import_nothing_beyond_torch_transformers_numpy_and_pyarrow():
    allowed = {"torch", "transformers", "numpy", "pyarrow", "anchorscope", *sys.stdlib_module_names}
    allowed.add("triton")  # a part of torch where there is a GPU, and imported only there
    allowed |= {
        "filelock",
        "regex",
        "safetensors",
        "tokenizers",
        "tqdm",
    }  # without which torch and transformers cannot be installed
    sources = read_sources([])
    for path in reachable(PACKAGE / "__main__.py", sources) | reachable(PACKAGE / "commands/extract.py", sources):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            assert {name.split(".")[0] for name in names} <= allowed, path.name
