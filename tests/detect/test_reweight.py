"""Pathway Reweighting is what its formula says, on both paths, with and without caps, windows and sinks."""

from dataclasses import replace
from math import log

import numpy as np
import pyarrow as pa
import pytest
import torch

from anchorscope.detect.again import (
    MarkedExample,
    marked_examples,
    reweighted_states,
    workload_of,
)
from anchorscope.detect.reweighting import AMOUNTS, GATES, SHIFTS, layer_read
from anchorscope.engine.parts import MODULES, find_parts
from anchorscope.engine.self_check import choose_path
from anchorscope.extract.axes import Headline
from architectures import VOCABULARY, small_model
from engines import engine_on
from few_examples import ALIKE, QUESTIONS, examples, prompts
from reference import plain_reweighted
from rounding import assert_same, of_a_pass, of_sums
from small_things import tiny_model

LAYERS = 5  # of which the first three are run
HEADLINE = Headline("resid", "answer_last")
DRAWN = np.random.default_rng(0).random((len(ALIKE), len(GATES)))


def marked(tokenizer, position: str = "answer_last", questions: list[str] = QUESTIONS) -> list[MarkedExample]:
    rows = examples(tokenizer, questions)
    return marked_examples(workload_of(tokenizer, prompts()["first"], rows, position), rows, position)


def found_by(model, some: list[MarkedExample], *, headline=HEADLINE, way=None, gates=DRAWN, batch_tokens=None):
    path = choose_path(model, max((example.ids.tolist() for example in some), key=len), 10)
    return reweighted_states(engine_on(path, model, way, batch_tokens), headline, some, gates[: len(some)])


def expected_of(model, some: list[MarkedExample], headline=HEADLINE, gates=DRAWN) -> torch.Tensor:
    """[1 + shifts, examples, width] from one pass for each vector."""
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    blocks = find_parts(model).blocks
    attentions = [block.attention for block in blocks]
    read = MODULES[headline.component](blocks[layer_read(len(blocks))])
    rows = []
    for example, mine in zip(some, gates, strict=False):
        ids = example.ids.tolist()
        until_question = ids[: example.question_last + 1]
        vectors = [plain_reweighted(model, until_question, attentions, read, added={}, start=0)]
        for gate, amount in SHIFTS:
            g = mine[GATES.index(gate)]
            added = {key: g * log(1 + amount) for key in example.exact_question}
            added |= {key: (1 - g) * log(1 + amount) for key in example.exact_answer}
            vectors.append(plain_reweighted(model, ids, attentions, read, added=added, start=example.answer))
        rows.append(torch.stack(vectors))
    model.set_attn_implementation(before)
    return torch.stack(rows, dim=1)


def difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest relative difference of two vectors."""
    assert found.shape == expected.shape
    return float(((found - expected).norm(dim=-1) / expected.norm(dim=-1)).max())


def rounding_of(model, some: list[MarkedExample], expected: torch.Tensor) -> float:
    return of_a_pass(model, max(len(example.ids) for example in some), expected)


@pytest.mark.parametrize(
    ("family", "questions"),  # three families with windows, one with a cap
    [
        pytest.param("llama", ALIKE, id="llama-alike"),
        pytest.param("gemma2", QUESTIONS, id="gemma2-different"),
        pytest.param("gemma3", ALIKE, id="gemma3-alike"),
        pytest.param("llama", QUESTIONS, id="llama-different", marks=pytest.mark.slow),
        pytest.param("gemma2", ALIKE, id="gemma2-alike", marks=pytest.mark.slow),
        pytest.param("gemma3", QUESTIONS, id="gemma3-different", marks=pytest.mark.slow),
        pytest.param("mistral", QUESTIONS, id="mistral-different", marks=pytest.mark.slow),
        pytest.param("mistral", ALIKE, id="mistral-alike", marks=pytest.mark.slow),
    ],
)
def test_states_are_those_of_one_pass_each_with_the_bias_in_the_models_own_mask(family, questions, tokenizer):
    model = tiny_model(family, len(tokenizer), layers=LAYERS)
    some = marked(tokenizer, questions=questions)
    expected = expected_of(model, some)
    assert difference(expected[1:], expected[[1]].expand_as(expected[1:])) > 0.01, "nothing happens that could differ"
    for way in ("packed", "plain"):
        assert_same(found_by(model, some, way=way), expected, rounding_of(model, some, expected))


@pytest.mark.parametrize("kind", ["gpt_oss", "bloom"])  # with attention sinks, with scores of rows times heads
def test_models_that_cannot_be_packed_are_reweighted_in_their_own_attention(kind, tokenizer):
    model = small_model(kind)
    some = marked(tokenizer)
    some = [replace(example, ids=example.ids % VOCABULARY) for example in some]
    assert choose_path(model, some[2].ids.tolist(), 10).name == "plain"
    expected = expected_of(model, some)
    assert_same(found_by(model, some), expected, rounding_of(model, some, expected))


@pytest.mark.parametrize(("component", "position"), [("attn", "final"), ("mlp", "before_answer")])
def test_other_components_and_positions_can_be_read(component, position, tokenizer):
    model = tiny_model("qwen3", len(tokenizer), layers=LAYERS)
    some = marked(tokenizer, position)
    headline = Headline(component, position)
    expected = expected_of(model, some, headline=headline)
    for way in ("packed", "plain"):
        found = found_by(model, some, headline=headline, way=way)
        assert_same(found, expected, rounding_of(model, some, expected))


def test_the_bias_is_the_formulas():
    ids = np.arange(9)
    example = MarkedExample(ids, answer=6, read=8, exact_question=[2, 3], exact_answer=[7], question_last=4)
    quarter = example.bias(g=0.25, amount=1.0)
    rounding = of_sums(3, log(2), np.float32)  # a logarithm, a product, and what is kept
    assert_same(quarter[[2, 3, 7]], [0.25 * log(2), 0.25 * log(2), 0.75 * log(2)], rounding)
    assert np.flatnonzero(quarter).tolist() == [2, 3, 7]
    assert np.flatnonzero(example.bias(g=1.0, amount=2.0)).tolist() == [2, 3]
    assert np.flatnonzero(example.bias(g=0.0, amount=2.0)).tolist() == [7]
    assert not example.bias(g=0.5, amount=AMOUNTS[0]).any(), "an amount of 0 changes nothing"


def test_states_without_anything_to_favour_are_the_clean_ones(tokenizer):
    model = tiny_model("llama", len(tokenizer), layers=LAYERS)
    some = marked(tokenizer)
    clean = expected_of(model, [replace(example, exact_question=[], exact_answer=[]) for example in some])
    assert difference(clean[2:], clean[[1]].expand_as(clean[2:])) == 0
    to_question, to_answer = np.ones_like(DRAWN), np.zeros_like(DRAWN)
    for name, gates in (("exact_question", to_question), ("exact_answer", to_answer)):
        nothing = [replace(example, **{name: []}) for example in some]
        for way in ("packed", "plain"):
            found = found_by(model, nothing, way=way, gates=gates)
            assert_same(found, clean, rounding_of(model, some, clean))
            assert difference(found_by(model, some, way=way, gates=gates)[1:], clean[1:]) > 0.01


def test_an_example_that_is_read_before_its_answer_begins_is_clean(tokenizer):
    rows = examples(tokenizer)
    rows = rows.set_column(rows.column_names.index("exact_first"), "exact_first", pa.array([0] * len(rows)))
    workload = workload_of(tokenizer, prompts()["first"], rows, "before_answer")
    some = marked_examples(workload, rows, "before_answer")
    assert all(example.read == example.answer - 1 == len(example.ids) - 1 for example in some)
    model = tiny_model("llama", len(tokenizer), layers=LAYERS)
    found = found_by(model, some)
    expected = expected_of(model, some)
    for vectors in found[2:]:
        assert_same(vectors, found[1], rounding_of(model, some, expected))
    assert_same(found, expected, rounding_of(model, some, expected))


def test_batches_of_any_size_give_the_same(tokenizer):
    model = tiny_model("qwen3", len(tokenizer), layers=LAYERS)
    some = marked(tokenizer)
    together = found_by(model, some)
    assert_same(found_by(model, some, batch_tokens=1), together, rounding_of(model, some, together))


@pytest.mark.parametrize("way", ["packed", "plain"])
def test_later_layers_are_not_run_and_the_model_is_left_as_it_was(way, tokenizer):
    model = tiny_model("llama", len(tokenizer), layers=LAYERS)
    some = marked(tokenizer)
    engine = engine_on(choose_path(model, some[2].ids.tolist(), 10), model, way)
    before = model(torch.arange(9)[None]).logits
    ran: list[int] = []
    handles = [
        block.register_forward_hook(lambda *_, layer=layer: ran.append(layer))
        for layer, block in enumerate(model.get_decoder().layers)
    ]
    reweighted_states(engine, HEADLINE, some, DRAWN[: len(some)])
    assert set(ran) == {0, 1, 2}
    ran.clear()
    assert torch.equal(model(torch.arange(9)[None]).logits, before)
    assert ran == list(range(LAYERS))
    for handle in handles:
        handle.remove()
    assert not any(module._forward_hooks for module in model.modules())


def test_marked_tokens_are_those_of_the_answers_file(tokenizer):
    rows = examples(tokenizer).to_pylist()
    for position, last in (("answer_last", "exact_last"), ("final", "answer_final")):
        some = marked(tokenizer, position)
        for example, row in zip(some, rows, strict=True):
            assert example.ids[example.answer :].tolist() == row["generated_ids"][: row[last] + 1]
            assert example.read == len(example.ids) - 1
            exact = row["generated_ids"][row["exact_first"] : row["exact_last"] + 1]
            assert example.ids[example.exact_answer].tolist() == exact
            assert 20 < example.question_last < example.answer
            assert row["question"].endswith(tokenizer.decode([example.ids[example.question_last]]).strip())
            words = tokenizer.decode(example.ids[example.exact_question])
            assert all(row["question"][span["start"] : span["end"]] in words for span in row["spans"])
