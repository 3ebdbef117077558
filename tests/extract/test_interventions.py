"""The knockout cuts what it says, and nothing else."""

from dataclasses import asdict

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from anchorscope.answer.prompts import Encoded, chat_prompt, encode, few_shot_prompt
from anchorscope.engine.packing import Pack
from anchorscope.engine.packs import grow_tree
from anchorscope.engine.self_check import choose_path
from anchorscope.engine.work import Variant, Work
from anchorscope.extract.axes import CONTROLS, PASSES, knockouts_of, passes_of
from anchorscope.extract.interventions import CONTROL_REACH, PromptedQuestion, cut_tokens
from anchorscope.text.content_words import exact_question_spans
from anchorscope.text.normal_words import Span
from engines import collected, engine_on
from rounding import assert_same, of_a_pass
from small_things import tiny_model

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


def states(model, ids: list[int], cut: list[int], keep: list[int]) -> torch.Tensor:
    """Residual states [layers, positions, width] of one sequence."""
    path = choose_path(model, ids, 0)
    assert path.name == "packed"
    work = Work([[[Variant(np.array(ids), read=keep, cut=cut)]]], ["resid"], range(len(path.parts.blocks)))
    found = [collected(engine_on(path, model, way), work)[0] for way in ("packed", "plain")]
    assert_same(*found, of_a_pass(model, len(ids), found[0]))
    return found[0]


def test_the_copied_feature_vanishes_under_exact_question_and_stays_under_random_question():
    model = copying_toy()
    ids = [0, 1, SUBJECT, 2, 3, 4, 5]  # the subject stands in the question, the answer is the last token
    clean = states(model, ids, cut=[], keep=[6])[:, 0, FEATURE]
    cut = states(model, ids, cut=[2], keep=[6])[:, 0, FEATURE]
    control = states(model, ids, cut=[3], keep=[6])[:, 0, FEATURE]
    assert (clean > 0.05).all()
    assert (cut == 0).all()
    assert (control > 0.05).all()


def test_information_does_not_flow_around_the_knockout_through_tokens_between():
    model = copying_toy()
    ids = [0, 1, SUBJECT, 2, 3, 4, 5]
    between = states(model, ids, cut=[2], keep=[3, 4, 5, 6])
    assert (between[:, :, FEATURE] == 0).all()


@pytest.mark.parametrize("family", ["llama", "qwen3", "mistral", "gemma3"])
def test_later_tokens_do_not_depend_on_the_identity_of_knocked_out_ones(family):
    model = tiny_model(family, 500)
    ids = list(range(10, 40))
    cut = [12, 13, 17]
    other = [401 + index if index in cut else token for index, token in enumerate(ids)]
    later = [index for index in range(12, 30) if index not in cut]
    same = states(model, ids, cut=cut, keep=later)
    assert torch.equal(same, states(model, other, cut=cut, keep=later))
    assert not torch.allclose(
        states(model, ids, cut=[], keep=later), states(model, other, cut=[], keep=later), atol=1e-3
    )


@pytest.mark.parametrize("sliding", [None, 3])
@pytest.mark.parametrize("prefix", [0, 2, 4])
def test_the_mask_of_a_tree_is_the_written_definition(prefix, sliding):
    """Every computed token of a knocked-out sequence sees what the method says, and clean ones see all before them."""
    length, cut = 9, [3, 5]
    sequence, clean = Variant(np.arange(length), read=[8], cut=cut), Variant(np.arange(length), read=[8])
    tree = grow_tree([clean, sequence], np.arange(prefix))
    group, *_ = Pack([tree], prefix).on(torch.device("cpu")).padded
    mask = group.mask(sliding)[0, 0]
    trunk, _, branch = tree.branches
    keys = [("trunk", place) for place in range(prefix)] + [("trunk", place) for place in trunk.positions]
    keys += [("branch", place) for place in branch.positions]
    assert branch.positions.tolist() == [4, 6, 7, 8]
    assert not mask[: tree.size, len(keys) :].any(), "a pad is seen"
    mask = mask[: tree.size, : len(keys)]
    for number, query in enumerate([*trunk.positions, *branch.positions]):
        mine = "trunk" if number < len(trunk.positions) else "branch"
        seen = sorted(place for (whose, place), visible in zip(keys, mask[number].tolist(), strict=True) if visible)
        hidden = cut if mine == "branch" else []
        near = [place for place in range(query + 1) if sliding is None or query - place < sliding]
        assert seen == [place for place in near if place not in hidden], (mine, query)
        if mine == "branch":  # what the knockout has changed is its own, what it has not is the trunk's
            whose = {place: name for (name, place), visible in zip(keys, mask[number].tolist(), strict=True) if visible}
            assert all(name == ("branch" if place >= cut[0] else "trunk") for place, name in whose.items())


def test_a_token_that_is_cut_cannot_be_read():
    with pytest.raises(ValueError, match="A token that is cut cannot be read"):
        Variant(np.arange(6), read=[3], cut=[2, 3])


def question(tokenizer, text: str) -> Encoded:
    return encode(tokenizer, few_shot_prompt([{"question": "Who wrote Emma?", "answer": "Jane Austen"}] * 3), [text])[0]


def random_question(item: Encoded, exact: list[int], example: str) -> list[int]:
    """The control of some exact tokens."""
    start = item.question.start
    spans = [{"start": item.offsets[token][0] - start, "end": item.offsets[token][1] - start} for token in exact]
    prompted = PromptedQuestion(example, "", spans=spans, encoded=item)
    assert cut_tokens("exact_question", prompted) == exact
    return cut_tokens("random_question", prompted)


def test_the_control_cuts_as_many_question_tokens_outside_the_exact_ones(tokenizer):
    item = question(tokenizer, "What is the name of the capital of the country that is called France?")
    exact = item.tokens_of([Span(24, 31), Span(62, 68)])
    drawn = random_question(item, exact, "example")
    assert len(drawn) == len(exact)
    assert not set(drawn) & set(exact)
    assert set(drawn) <= set(item.question_tokens)
    assert drawn == random_question(item, exact, "example")
    assert any(random_question(item, exact, str(seed)) != drawn for seed in range(5))


def prompted_question(tokenizer, text: str, subject: str | None) -> PromptedQuestion:
    spans = [asdict(span) for span in exact_question_spans(text, subject)]
    return PromptedQuestion("example", text, spans=spans, encoded=question(tokenizer, text))


def words_cut(tokenizer, intervention: str, text: str, subject: str | None) -> str:
    """What an intervention cuts, as text."""
    prompted = prompted_question(tokenizer, text, subject)
    return tokenizer.decode([prompted.encoded.ids[index] for index in cut_tokens(intervention, prompted)])


@pytest.mark.parametrize(
    ("text", "subject", "expected"),
    [
        (
            "Who was the director of Gone with the Wind?",
            "Gone with the Wind",
            {
                "exact_question": " director Gone with the Wind",
                "subject": " Gone with the Wind",
                "property": " director",
                "content": " director Gone Wind",  # "with" and "the" are on the list of function words
                "whole_question": " Who was the director of Gone with the Wind?",
            },
        ),
        # A subject that the question does not name, and none: nobody can tell subject and property apart.
        ("how tall is Mont Blanc", "Everest", {"subject": "", "property": "", "exact_question": " Mont Blanc"}),
        ("how tall is Mont Blanc", None, {"subject": "", "property": "", "content": " tall Mont Blanc"}),
        ("Who is Björk?", "Björk", {"subject": " Björk", "property": "", "content": " Björk"}),
    ],
)
def test_each_knockout_cuts_its_own_choice_of_words(text, subject, expected, tokenizer):
    assert {name: words_cut(tokenizer, name, text, subject) for name in expected} == expected
    assert words_cut(tokenizer, "exact_question_w4", text, subject) == words_cut(
        tokenizer, "exact_question", text, subject
    )


@pytest.mark.parametrize("knockout", CONTROLS)
def test_every_control_cuts_as_many_tokens_as_its_knockout_and_none_that_carries_content(knockout, tokenizer):
    text = "Who was the director of Gone with the Wind?"
    prompted = prompted_question(tokenizer, text, "Gone with the Wind")
    cut, drawn, exact = (cut_tokens(name, prompted) for name in (knockout, CONTROLS[knockout], "exact_question"))
    assert len(drawn) == len(cut) > 0
    assert not set(drawn) & {*cut, *exact}
    question_tokens = set(prompted.encoded.question_tokens)
    assert (set(drawn) <= question_tokens) == (len(question_tokens - {*cut, *exact}) >= len(cut))
    if knockout == "whole_question":
        assert not set(drawn) & question_tokens
        assert max(drawn) < min(question_tokens)


def test_where_nothing_is_cut_the_control_cuts_nothing(tokenizer):
    prompted = prompted_question(tokenizer, "how tall is Mont Blanc", None)
    assert cut_tokens("subject", prompted) == cut_tokens("random_subject", prompted) == []


def test_what_is_run_follows_from_what_is_asked_for():
    assert knockouts_of([], []) == knockouts_of(["exact_question"], []) == ["exact_question"]
    assert PASSES == [
        ("first", "clean"),
        ("first", "exact_question"),
        ("first", "random_question"),
        ("second", "clean"),
        ("second", "exact_question"),
    ], "a default run costs no more"
    assert knockouts_of(["content", "subject"], [8, 1]) == [
        "exact_question",
        "subject",
        "content",
        "exact_question_w1",
        "exact_question_w8",
    ]
    assert passes_of("subject") == [("first", "subject"), ("first", "random_subject"), ("second", "subject")]
    assert passes_of("exact_question_w8") == [("first", "exact_question_w8")]


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
