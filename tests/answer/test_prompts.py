"""Token spans cover exactly the characters they stand for."""

import copy
import json
import re

import pytest
from transformers import LlamaConfig

from anchorscope.answer.answers import answer_questions, remarks, stop_tokens
from anchorscope.answer.prompts import (
    BUNDLED_PROMPTS,
    chat_prompt,
    decoded_offsets,
    encode,
    few_shot_prompt,
    tokens_over,
)
from anchorscope.engine.batches import plan_batches
from anchorscope.engine.door import Engine, check_length
from anchorscope.text.content_words import exact_question_spans
from anchorscope.text.normal_words import Span
from small_things import tiny_model

SHOTS = [{"question": "Who wrote Emma?", "answer": "Jane Austen"}]
TEXTS = [
    " Paris",
    " Gabriel García Márquez",
    " 東京都庁",
    " 👩‍🚀 and 🇳🇴",
    " O'Brien's “Third Policeman”",
    " 3,677.5 km²",
    "ß-carotene naïveté",
]


@pytest.mark.parametrize("text", TEXTS)
def test_offsets_of_generated_ids_agree_with_the_tokenizers_own_mapping(tokenizer, text):
    batch = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
    decoded, offsets = decoded_offsets(tokenizer, batch["input_ids"])
    assert decoded == text
    for (start, end), (own_start, own_end) in zip(offsets, batch["offset_mapping"], strict=True):
        # The tokenizer leaves a token's leading space out of its offsets; the characters are the same otherwise.
        assert text[start:end].lstrip() == text[own_start:own_end].lstrip()


def test_ids_that_no_text_would_tokenise_to_still_get_their_characters(tokenizer):
    ids = [tokenizer(part, add_special_tokens=False)["input_ids"] for part in (" P", "a", "r", "is")]
    text, offsets = decoded_offsets(tokenizer, [token for part in ids for token in part])
    assert text == " Paris"
    assert [text[start:end] for start, end in offsets] == [" P", "a", "r", "is"]
    assert tokens_over(offsets, [Span(1, 6)]) == [0, 1, 2, 3]


def test_tokens_inside_one_character_all_cover_it(tokenizer):
    ids = tokenizer("x🦩y", add_special_tokens=False)["input_ids"]
    assert len(ids) > 3, "the emoji must be several tokens for this test"
    text, offsets = decoded_offsets(tokenizer, ids)
    assert [text[start:end] for start, end in offsets] == ["x", *["🦩"] * (len(ids) - 2), "y"]


@pytest.mark.parametrize(
    "question",
    [
        "Who is Björk Guðmundsdóttir?",
        "who wrote 百年の孤独",
        'What does 👩‍🚀 mean in "Gravity"?',
        "is O'Neill older than J.K. Rowling",
    ],
)
def test_exact_question_tokens_cover_the_exact_words_and_no_other_word(tokenizer, question):
    (item,) = encode(tokenizer, few_shot_prompt(SHOTS), [question])
    spans = exact_question_spans(question)
    inside = {index for span in spans for index in range(span.start, span.end)}
    tokens = item.tokens_of(spans)
    covered = {index - item.question.start for token in tokens for index in range(*item.offsets[token])}
    assert inside <= covered
    extra = "".join(question[index] for index in sorted(covered - inside))
    assert not extra.strip(" '\"?"), extra


def test_the_question_stands_where_the_prompt_says(tokenizer):
    prompt = few_shot_prompt(SHOTS)
    (item,) = encode(tokenizer, prompt, ["who is it"])
    text = f"{prompt.before}who is it{prompt.after}"
    assert text[item.question.start : item.question.end] == "who is it"
    assert text.startswith("Question: Who wrote Emma?\nAnswer: Jane Austen\n\nQuestion: ")
    assert item.ids == tokenizer(text)["input_ids"]


def test_a_chat_prompt_is_the_models_template_around_the_question(tokenizer):
    prompt = chat_prompt(tokenizer, "Be brief.\n\nQuestion: {question}")
    rendered = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Be brief.\n\nQuestion: why"}], tokenize=False, add_generation_prompt=True
    )
    assert f"{prompt.before}why{prompt.after}" == rendered
    assert not prompt.special_tokens


def test_a_chat_template_that_repeats_the_message_is_refused(tokenizer):
    parrot = copy.deepcopy(tokenizer)
    parrot.chat_template = "{{ messages[0].content }} You said: {{ messages[0].content }}"
    with pytest.raises(ValueError, match=r"^The model's chat template repeats the user's message; "):
        chat_prompt(parrot, "Answer: {question}")


LOOPS = "{% for a in range(99999) %}" * 3 + "{% endfor %}" * 3


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (LOOPS, "it takes more than 2 seconds"),
        ("{{ 9 ** (9 ** 9) }}", "it takes more than 2 seconds"),
        ("{% for a in range(10**9) %}{% endfor %}", "OverflowError: Range too big"),
        ("{{ 'x' * 10**10 }}", "it takes more than 1 GB of memory"),
        ("{% for a in range(99999) %}Once more.{% endfor %}", "it makes more than 400,000 bytes"),
        ("{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}", "RecursionError: "),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "SecurityError: access to attribute '__class__'"),
        ("{{ cycler.__init__.__globals__.os.system('true') }}", "SecurityError: access to attribute '__init__'"),
        ("{% if %}", "TemplateSyntaxError: "),
        ("{{ messages[7].content.x }}", "UndefinedError: "),
        ("{{ raise_exception('No user here.') }}", "TemplateError: No user here"),
        ("\ud800", "UnicodeEncodeError: "),
    ],
)
def test_a_chat_template_that_fails_or_never_ends_is_one_sentence(tokenizer, template, said):
    bad = copy.deepcopy(tokenizer)
    bad.chat_template = template
    beginning = f"The model's chat template cannot be rendered: {said}"
    with pytest.raises(ValueError, match=rf"^{re.escape(beginning)}[^\n]*; mend it, or use `prompt: few_shot`\.$"):
        chat_prompt(bad, "Answer: {question}")


def test_a_chat_template_without_a_system_role_is_used_and_one_that_needs_it_is_refused(tokenizer):
    picky = copy.deepcopy(tokenizer)
    refuse = "{{ raise_exception('no such role') }}"
    turns = "{% for turn in messages %}<|im_start|>{{ turn.content }}<|im_end|>{% endfor %}"
    picky.chat_template = "{% if messages[0].role == 'system' %}" + refuse + "{% endif %}" + turns
    assert chat_prompt(picky, "Answer: {question}").before == "<|im_start|>Answer: "
    picky.chat_template = "{% if messages[0].role != 'system' %}" + refuse + "{% endif %}" + turns
    with pytest.raises(
        ValueError,
        match=r"^The model's chat template cannot be rendered: TemplateError: no such role; mend it, or use `prompt",
    ):
        chat_prompt(picky, "Answer: {question}")


def test_a_question_that_spells_a_control_token_is_refused(tokenizer):
    questions = ["Who wrote Emma?", "Who wrote <|im_end|> Emma?"]
    said = r"^The question 'Who wrote <\|im_end\|> Emma\?' holds '<\|im_end\|>', a control token"
    with pytest.raises(ValueError, match=said):
        encode(tokenizer, few_shot_prompt(SHOTS), questions)


def test_a_prompt_longer_than_the_models_positions_is_refused(tokenizer):
    model = tiny_model("llama", len(tokenizer), layers=2)  # of 512 positions
    questions = [{"question": f"Who wrote {'a very ' * 600}long book?", "gold": ["X"], "spans": []}]
    with pytest.raises(ValueError, match=r"^The longest prompt with its answer has \d+ tokens, more than .* 512 "):
        answer_questions(Engine(model), tokenizer, few_shot_prompt(SHOTS), questions=questions, max_new_tokens=4)


def test_an_end_of_text_that_is_no_token_stops_nothing_or_is_refused(tokenizer):
    model = tiny_model("llama", len(tokenizer), layers=2)
    model.generation_config.eos_token_id = [-1, len(tokenizer), 5]
    assert stop_tokens(model, [3]).nonzero().flatten().tolist() == [3, 5]
    model.generation_config.eos_token_id = "</s>"
    with pytest.raises(ValueError, match=r"^eos_token_id in the model's generation_config\.json is '</s>', not"):
        stop_tokens(model, [3])


def test_as_many_tokens_as_there_are_positions_fit():
    check_length(512, LlamaConfig(max_position_embeddings=512))
    with pytest.raises(ValueError, match="has 513 tokens"):
        check_length(513, LlamaConfig(max_position_embeddings=512))


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (["Paris", "", "Rome", ""], []),
        (["", "", "Rome"], ["2 of 3 answers are empty; "]),
        (["jane austen", "Jane Austen", "Rome"], ["2 of 3 answers repeat one of the prompt's demonstrations; "]),
        ([], []),
    ],
)
def test_most_answers_empty_or_echoed_are_remarked_on(answers, said):
    found = remarks(answers, SHOTS)
    assert len(found) == len(said)
    assert all(sentence.startswith(beginning) for sentence, beginning in zip(found, said, strict=True))
    assert remarks(answers, "Answer {question}") == [sentence for sentence in found if "empty" in sentence]


def test_an_offered_refusal_is_no_echo_and_the_prompt_that_offers_it_shows_one():
    for style in ("few_shot", "chat"):
        text = json.loads(BUNDLED_PROMPTS.read_text(encoding="utf-8"))[style]["unsure"]
        assert "I don't know" in json.dumps(text)
    shots = [*SHOTS, {"question": "Who was there?", "answer": "I don't know"}]
    assert remarks(["I don't know", "I don't know", "Rome"], shots) == []
    assert len(remarks(["Jane Austen", "Jane Austen", "Rome"], shots)) == 1


def test_batches_hold_every_example_once_within_the_budget():
    sizes = [5, 30, 7, 7, 130, 12, 60, 31]
    plan = plan_batches(sizes, budget=120)
    assert sorted(index for batch in plan for index in batch) == list(range(len(sizes)))
    for batch in plan:
        assert len(batch) == 1 or sum(sizes[index] for index in batch) <= 120
    assert [sizes[index] for index in plan[0]] == [130], "largest first, alone when over the budget"
    assert len(plan) < len(sizes)
    assert plan == plan_batches(sizes, budget=120)
