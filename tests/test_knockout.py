"""The knockout cuts what it says, and nothing else."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from anchorscope.attention import allowed, compute_prefix
from anchorscope.content_words import Span
from anchorscope.extract import Recorder, Row, run_rows
from anchorscope.knockout import CONTROL_REACH, exact_question, random_question
from anchorscope.prompts import Encoded, chat_prompt, encode, few_shot_prompt
from conftest import tiny_model

SUBJECT, FEATURE = 7, 3  # the token that carries the feature, and the feature's dimension


def copying_toy() -> LlamaForCausalLM:
    """Two attention-only layers that attend evenly and copy: every state holds the mean of what it sees.

    Token t is the unit vector t; so dimension FEATURE of a state is non-zero only if information from
    SUBJECT, whose embedding alone has that dimension, has reached it.
    """
    width, vocabulary = 16, 12
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=8,
        num_hidden_layers=2,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=width,
        attn_implementation="sdpa",
    )
    model = LlamaForCausalLM(config).eval().requires_grad_(False)
    embedding = torch.zeros(vocabulary, width)
    embedding[torch.arange(vocabulary), 4 + torch.arange(vocabulary)] = 1.0
    embedding[SUBJECT] = 0
    embedding[SUBJECT, FEATURE] = 1.0
    model.get_input_embeddings().weight.copy_(embedding)
    for layer in model.get_decoder().layers:
        for projection in (layer.self_attn.q_proj, layer.self_attn.k_proj):
            projection.weight.zero_()  # equal scores
        for projection in (layer.self_attn.v_proj, layer.self_attn.o_proj):
            projection.weight.copy_(torch.eye(width))
        layer.mlp.down_proj.weight.zero_()  # no MLP
    return model


def states(model, row: Row) -> torch.Tensor:
    """Residual states [layers, positions, width] of one row."""
    return run_rows(model, Recorder(model), compute_prefix(model, []), 0, [row])[0, :, 0]


def test_the_copied_feature_vanishes_under_exact_question_and_stays_under_random_question():
    model = copying_toy()
    ids = [0, 1, SUBJECT, 2, 3, 4, 5]  # the subject stands in the question, the answer is the last token
    clean = states(model, Row(ids, [], [6]))[:, 0, FEATURE]
    cut = states(model, Row(ids, [2], [6]))[:, 0, FEATURE]
    control = states(model, Row(ids, [3], [6]))[:, 0, FEATURE]
    assert (clean > 0.05).all()
    assert (cut == 0).all()
    assert (control > 0.05).all()


def test_information_does_not_flow_around_the_knockout_through_tokens_between():
    model = copying_toy()
    ids = [0, 1, SUBJECT, 2, 3, 4, 5]
    between = states(model, Row(ids, [2], [3, 4, 5, 6]))
    assert (between[:, :, FEATURE] == 0).all()


def test_the_cut_tokens_still_see_each_other_and_what_is_before_them():
    model = copying_toy()
    ids = [0, SUBJECT, 2, 3]
    inside = states(model, Row(ids, [1, 2], [2]))[:, 0, FEATURE]
    assert (inside > 0.05).all()


@pytest.mark.parametrize("family", ["llama", "qwen3", "mistral", "gemma3"])
def test_later_tokens_do_not_depend_on_the_identity_of_knocked_out_ones(family):
    model = tiny_model(family, 500)
    ids = list(range(10, 40))
    cut = [12, 13, 17]
    other = [401 + index if index in cut else token for index, token in enumerate(ids)]
    later = [index for index in range(12, 30) if index not in cut]
    same = states(model, Row(ids, cut, later))
    assert torch.equal(same, states(model, Row(other, cut, later)))
    assert not torch.allclose(states(model, Row(ids, [], later)), states(model, Row(other, [], later)), atol=1e-3)


def test_the_mask_is_the_written_definition():
    cut, window = {2, 4}, 3
    positions = torch.arange(7)[None]
    cut_keys = torch.tensor([[index in cut for index in range(7)]])
    mask = allowed(positions, positions, cut_keys, window)[0, 0]
    for query in range(7):
        for key in range(7):
            visible = key <= query and query - key < window and not (key in cut and query not in cut)
            assert bool(mask[query, key]) is visible, (query, key)


def question(tokenizer, text: str) -> Encoded:
    return encode(tokenizer, few_shot_prompt([{"question": "Who wrote Emma?", "answer": "Jane Austen"}] * 3), [text])[0]


def test_the_control_cuts_as_many_question_tokens_outside_the_exact_ones(tokenizer):
    item = question(tokenizer, "What is the name of the capital of the country that is called France?")
    exact = item.tokens_of([Span(24, 31), Span(62, 68)])
    drawn = random_question(item, exact, "example")
    assert exact_question(item, exact, "example") == exact
    assert len(drawn) == len(exact)
    assert not set(drawn) & set(exact)
    assert set(drawn) <= set(item.question_tokens)
    assert drawn == random_question(item, exact, "example")
    assert any(random_question(item, exact, str(seed)) != drawn for seed in range(5))


def test_the_control_cuts_as_many_tokens_as_a_long_question_has_exact_ones(tokenizer):
    item = question(tokenizer, "Which " + " ".join(f"word{number}" for number in range(30)) + "?")
    exact = item.question_tokens[1:-1]
    assert len(exact) > 2 * CONTROL_REACH
    drawn = random_question(item, exact, "example")
    assert len(drawn) == min(len(exact), item.question_tokens[0] - 1 + 2)
    assert not set(drawn) & set(exact)


def test_the_control_leaves_a_chat_templates_marks_alone(tokenizer):
    (item,) = encode(tokenizer, chat_prompt(tokenizer, "{question}"), ["Gone with the Wind author and year?"])
    drawn = random_question(item, item.question_tokens, "example")
    assert item.special
    assert not set(drawn) & item.special
    assert 0 not in drawn


def test_the_control_reaches_back_before_the_question_when_it_has_too_few_tokens(tokenizer):
    item = question(tokenizer, "Gone with the Wind author?")
    exact = item.question_tokens[:-1]
    drawn = random_question(item, exact, "example")
    assert len(drawn) == len(exact)
    assert not set(drawn) & set(exact)
    assert set(item.question_tokens) - set(exact) <= set(drawn)
    assert min(drawn) >= item.question_tokens[0] - CONTROL_REACH
    assert 0 not in drawn
