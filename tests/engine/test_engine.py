"""What keeps the engine honest: memory that runs out, numbers that are not finite, models it cannot run."""

import ast
import logging
import sys

import pytest
import torch
from transformers import GptOssConfig, GptOssForCausalLM, Qwen3ForCausalLM

from anchorscope.engine.attention import _padded, packed_attention
from anchorscope.engine.batches import run_batches
from anchorscope.engine.fused import fused
from anchorscope.engine.packing import Pack
from anchorscope.engine.self_check import check_packed
from anchorscope.extract.run import run_workload
from anchorscope.extract.sequences import build_workload, grow_tree
from anchorscope.extract.store import PASSES, ActivationReader, ActivationWriter
from anchorscope.extract.writer import writing
from anchorscope.fingerprint import PACKAGE, _reachable
from few_examples import examples, forest, prompts
from small_things import tiny_model


def test_each_branch_alone_as_a_causal_sequence_is_the_tree_under_its_mask():
    """The GPU's kernel of ragged sequences gets these key places; here each is attended to in a plain loop."""
    prefix, heads, groups, width = 7, 2, 3, 8
    pack = Pack([grow_tree(sequences, prefix) for sequences in forest(4, prefix)], prefix)
    torch.manual_seed(0)
    query = torch.randn(len(pack.tokens), heads * groups, width)
    keys, values = (torch.randn(prefix + len(pack.tokens), heads, width) for _ in range(2))
    placed = pack.on(torch.device("cpu"))
    places, query_bounds, key_bounds, most_queries, most_keys = placed.ragged
    found = torch.empty_like(query)
    for branch in range(len(query_bounds) - 1):
        mine = slice(query_bounds[branch], query_bounds[branch + 1])
        seen = places[key_bounds[branch] : key_bounds[branch + 1]]
        count, offset = mine.stop - mine.start, len(seen) - (mine.stop - mine.start)
        for number in range(count):
            for head in range(heads * groups):
                visible = seen[: offset + number + 1]
                weights = (keys[visible, head // groups] @ query[mine][number, head] * 0.3).softmax(dim=0)
                found[mine][number, head] = weights @ values[visible, head // groups]
    assert (most_queries, most_keys) == (query_bounds.diff().max(), key_bounds.diff().max())
    expected = _padded(query, keys, values, placed=placed, scaling=0.3, sliding=None, softcap=None)
    torch.testing.assert_close(expected, found)


def activations(model, tokenizer, path, batch_tokens=4096):
    with ActivationWriter(path, layers=4, width=32, dtype=torch.float32, made_from={}) as writer:
        workload = build_workload(tokenizer, prompts(), examples(tokenizer))
        run_workload(model, workload, writer, batch_tokens=batch_tokens)
    return ActivationReader([path])


def test_a_batch_that_does_not_fit_is_halved_remembered_and_logged(tokenizer, tmp_path, caplog):
    model = tiny_model("llama", len(tokenizer))
    expected = activations(model, tokenizer, tmp_path / "whole.parquet")
    sizes = []

    def short_of_memory(module, args, kwargs):
        if kwargs.get("pack") is not None and len(kwargs["pack"].trees) > 2:  # a batch, and its filler
            tokens = len(kwargs["pack"].tokens)
            sizes.append(tokens)
            if tokens > 120:
                raise torch.OutOfMemoryError("no memory for this test")

    model.get_decoder().register_forward_pre_hook(short_of_memory, with_kwargs=True)
    with caplog.at_level(logging.WARNING, logger="anchorscope"):
        found = activations(model, tokenizer, tmp_path / "halved.parquet")
    assert [key["id"] for key in found.keys] == [key["id"] for key in expected.keys]
    for run in PASSES:
        read = [part.read("resid", "final", *run, layers=range(4)) for part in (found, expected)]
        torch.testing.assert_close(*read, atol=1e-4, rtol=0)
    assert sizes[0] > 120
    assert "out of memory at" in caplog.text
    failures = [size > 120 for size in sizes]
    assert not any(failures[failures.index(False) :]), "a size that failed is not tried again"


def test_an_example_that_never_fits_is_one_sentence():
    def run(batch):
        raise torch.OutOfMemoryError

    with pytest.raises(MemoryError, match="A single example of 30 tokens does not fit into memory"):
        run_batches(run, [10, 30], budget=64, what="trying")


def test_a_failed_allocation_on_the_host_counts_as_out_of_memory_and_other_errors_do_not():
    done = []

    def run(batch):
        if len(batch) > 1:
            torch.empty(2**60)
        done.extend(batch)

    run_batches(run, [8] * 5, budget=64, what="trying")
    assert sorted(done) == list(range(5))
    with pytest.raises(RuntimeError, match="size of tensor"):
        run_batches(lambda batch: torch.ones(2) + torch.ones(3), [8] * 5, budget=64, what="trying")


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


@pytest.mark.parametrize(("family", "replaced"), [("llama", True), ("qwen3", True), ("gemma3", False)])
def test_fused_norms_compute_the_same_and_only_where_they_do(family, replaced):
    model = tiny_model(family, 500)
    for name, weight in model.named_parameters():
        if "norm" in name:
            weight.copy_(torch.randn_like(weight))
    ids = torch.arange(20)[None]
    plain = model(ids).logits
    norm = model.get_decoder().layers[0].input_layernorm
    with fused(model):
        assert ("forward" in vars(norm)) is replaced
        torch.testing.assert_close(model(ids).logits, plain, atol=1e-4, rtol=1e-4)
    assert "forward" not in vars(norm)


def test_a_model_whose_attention_has_more_to_it_is_refused_before_any_work():
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
    with pytest.raises(ValueError, match="gpt_oss models cannot be run: their attention has something"):
        check_packed(model, list(range(30)), 10)
    check_packed(tiny_model("qwen3", 500), list(range(30)), 10)


def test_a_model_is_left_as_it_was():
    model = tiny_model("qwen3", 500)
    with packed_attention(model):
        assert model.config._attn_implementation == "anchorscope"
    assert model.config._attn_implementation == "sdpa"
    assert isinstance(model, Qwen3ForCausalLM)
    assert model(torch.arange(5)[None]).logits.isfinite().all()


def test_the_first_tokens_are_shared_whatever_the_order_of_the_prompts(tokenizer):
    rows = examples(tokenizer)
    backwards = dict(reversed(prompts().items()))
    found, expected = (build_workload(tokenizer, some, rows) for some in (backwards, prompts()))
    assert found.shared == expected.shared
    for some, other in zip(found.sequences, expected.sequences, strict=True):
        for sequence, same in zip(some, other, strict=True):
            assert (sequence.ids == same.ids).all()
            assert (sequence.cut, sequence.keep) == (same.cut, same.keep)


def test_the_extract_command_imports_nothing_beyond_torch_transformers_numpy_and_pyarrow():
    allowed = {"torch", "transformers", "numpy", "pyarrow", "anchorscope", *sys.stdlib_module_names}
    allowed.add("triton")  # a part of torch where there is a GPU, and imported only there
    allowed |= {"filelock", "tokenizers", "tqdm"}  # without which torch and transformers cannot be installed
    for path in _reachable(PACKAGE / "__main__.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            assert {name.split(".")[0] for name in names} <= allowed, path.name
