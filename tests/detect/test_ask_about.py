"""What a model says of its answers is what it says of each alone, and both jobs write it down."""

import json
from functools import partial
from itertools import cycle

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import torch

from anchorscope.answer.answers import ANSWERS_SCHEMA, answer_questions
from anchorscope.answer.prompts import PromptSet, few_shot_prompt
from anchorscope.choose.balance import analysed
from anchorscope.detect.again import AgainSettings, Asking, ask_about, build_askings, run_again
from anchorscope.detect.samples import SampleSettings, own_uniforms, sample_file
from anchorscope.engine import self_check
from anchorscope.engine.door import Engine
from anchorscope.extract.axes import Headline
from anchorscope.files.sealed_parquet import provenance, read_table, write_table
from anchorscope.models.fetch import fetch_model
from few_examples import ALIKE, QUESTIONS
from reference import plain_sample
from rounding import assert_same, of_a_pass, of_sums
from small_run import save_model
from small_things import ROOT, tiny_model

ANSWERS = ["Paris.", "1321", "Neil Armstrong, in July 1969", "Atlanta (Georgia)", "no"]
TEXTS = json.loads((ROOT / "workflow/resources/prompts.json").read_text())


def prompts(style: str) -> PromptSet:
    return PromptSet(style, {name: text for name, text in TEXTS[style].items() if name.startswith("about")})


def few_shot_text(question: str, answer: str) -> str:
    """The bundled few-shot prompt, written out from its parts."""
    text = TEXTS["few_shot"]["about_header"] + "\n\n"
    for number, shot in enumerate(TEXTS["few_shot"]["about_shots"]):
        true, sure = f"True: {shot['true']}\n", f"Sure: {shot['sure']}\n"
        text += f"Question: {shot['question']}\nAnswer: {shot['answer']}\n"
        text += (sure + true if number % 2 else true + sure) + "\n"
    return f"{text}Question: {question}\nAnswer: {answer}\n"


def chat_text(tokenizer, question: str, answer: str, asked: str) -> str:
    texts = TEXTS["chat"]
    content = f"{texts['about_header']}\n\nQuestion: {question}\nAnswer: {answer}\n\n{texts[asked]}"
    turns = [{"role": "user", "content": content}]
    return tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)


@torch.inference_mode()
def alone(model, tokenizer, text: str, options: list[str]) -> torch.Tensor:
    """The logits of options, each one token here, after one text: one call of the model."""
    ids = [token for option in options for token in tokenizer(option)["input_ids"]]
    assert len(ids) == len(options)
    tokens = torch.tensor([tokenizer(text)["input_ids"]])
    return model(input_ids=tokens, use_cache=False, logits_to_keep=1).logits[0, -1, ids]


def expected(model, tokenizer, style: str, asked: dict[str, str]) -> list[torch.Tensor]:
    """Logits [examples, options] of both askings, by an unbatched call for each example and asking."""
    digits, rows = list("0123456789"), {"true": [], "sure": []}
    for question, answer in asked.items():
        if style == "chat":
            true, sure = (chat_text(tokenizer, question, answer, f"about_{name}") for name in rows)
            words = ["yes", "no"]
        else:  # a space is a token of its own before a digit, but a part of a word's first token
            true, sure = few_shot_text(question, answer) + "True:", few_shot_text(question, answer) + "Sure: "
            words = [" yes", " no"]
        rows["true"].append(alone(model, tokenizer, true, words))
        rows["sure"].append(alone(model, tokenizer, sure, digits))
    return [torch.stack(some) for some in rows.values()]


def same_logits(model, askings: list[Asking], found: list[torch.Tensor], wanted: list[torch.Tensor]) -> None:
    """Whether those of each asking are the same."""
    for asking, mine, other in zip(askings, found, wanted, strict=True):
        assert_same(mine, other, of_a_pass(model, max(map(len, asking.sequences)), other))


@pytest.mark.parametrize(
    ("style", "family", "questions"),
    [
        pytest.param("few_shot", "llama", ALIKE, id="few_shot-llama-alike"),
        pytest.param("chat", "qwen3", QUESTIONS, id="chat-qwen3-different"),
        pytest.param("few_shot", "llama", QUESTIONS, id="few_shot-llama-different", marks=pytest.mark.slow),
        pytest.param("few_shot", "gemma3", QUESTIONS, id="few_shot-gemma3-different", marks=pytest.mark.slow),
        pytest.param("few_shot", "gemma3", ALIKE, id="few_shot-gemma3-alike", marks=pytest.mark.slow),
        pytest.param("chat", "qwen3", ALIKE, id="chat-qwen3-alike", marks=pytest.mark.slow),
    ],
)
def test_a_model_says_of_many_answers_what_it_says_of_each_alone(style, family, questions, tokenizer, monkeypatch):
    model, answered = tiny_model(family, len(tokenizer)), dict(zip(questions, cycle(ANSWERS), strict=False))
    askings = build_askings(tokenizer, prompts(style), list(answered), list(answered.values()))
    wanted = expected(model, tokenizer, style, answered)
    packed = ask_about(Engine(model, 100), askings)
    monkeypatch.setattr(self_check._Trial, "packed_fault", lambda trial: "a test wants it so")
    plain = ask_about(Engine(model, 1000), askings)
    for some in (packed, plain):
        same_logits(model, askings, some, wanted)
    assert wanted[0].diff(dim=1).std() > 0.1, "the model says the same of every answer"


def test_askings_that_share_nothing_are_asked_too():
    model = tiny_model("llama", 200)
    draw = torch.Generator().manual_seed(0)
    sequences = [[torch.randint(5, 200, (size,), generator=draw).tolist() for size in (3, 1, 6)] for _ in range(2)]
    askings = [Asking(some, [7, 8]) for some in sequences]
    found = ask_about(Engine(model), askings)
    with torch.inference_mode():
        wanted = [
            torch.stack([model(input_ids=torch.tensor([ids])).logits[0, -1, [7, 8]] for ids in some])
            for some in sequences
        ]
    same_logits(model, askings, found, wanted)


def test_what_spells_a_control_token_is_left_out_of_an_answer(tokenizer):
    build = partial(build_askings, tokenizer, prompts("few_shot"), QUESTIONS[:1])
    assert build(["Par<|im_end|>is"]) == build(["Paris"])


def test_options_that_begin_with_the_same_token_are_refused_in_one_sentence(tokenizer, monkeypatch):
    monkeypatch.setitem(build_askings.__globals__["OPTIONS"], "about_sure", ("12", "13"))
    assert build_askings(tokenizer, prompts("few_shot"), QUESTIONS, ANSWERS)[1].options, "digits are tokens here"
    monkeypatch.setitem(build_askings.__globals__["OPTIONS"], "about_sure", ("1", "12"))
    with pytest.raises(ValueError, match=r"does not tell 1, 12 apart by one token, so .*; use the other style .*\.$"):
        build_askings(tokenizer, prompts("few_shot"), QUESTIONS, ANSWERS)


@pytest.fixture(scope="module")
def answered(tokenizer, tmp_path_factory):
    """A folder with a tiny model, its manifest and its chosen answers, half of which count as right."""
    folder = tmp_path_factory.mktemp("answered")
    save_model(folder / "weights", tokenizer, seed=0)
    fetch_model("tiny", {"path": str(folder / "weights")}, folder=folder / "tiny", manifest=folder / "tiny.json")
    questions = [
        {"id": f"q{index}", "question": text, "gold": ["x"], "subject": None, "property": None, "popularity": None}
        | {"spans": [{"start": 0, "end": 3, "kind": "property"}]}
        for index, text in enumerate(QUESTIONS)
    ]
    model = tiny_model("llama", len(tokenizer), layers=2)
    prompt = few_shot_prompt(TEXTS["few_shot"]["first"])
    table = answer_questions(Engine(model), tokenizer, prompt, questions, max_new_tokens=5)
    rows = [row | {"right": index % 2 == 0, "refused": index == 4} for index, row in enumerate(table.to_pylist())]
    chosen = analysed(pa.Table.from_pylist(rows, schema=ANSWERS_SCHEMA), balance=True, seed=0)
    write_table(folder / "chosen.parquet", chosen, {})
    return folder


def settings(kind, **others):
    shape = {"dtype": "float32", "threads": 1, "batch_tokens": None, "code": "a test"}
    return kind(**shape, **others)


def ask_about_file(folder, chosen: str, asked: str) -> None:
    """Run the job without gates, so that it asks about answers and shifts no attention."""
    gates = folder / "gates.parquet"
    write_table(gates, pa.table({"id": pa.array([], pa.string())}), provenance(not_probed="too few"))
    about, first = prompts("few_shot"), PromptSet("few_shot", {"first": TEXTS["few_shot"]["first"]})
    run_again(
        folder / f"{chosen}.parquet",
        gates=gates,
        manifest=folder / "tiny.json",
        asked=folder / f"{asked}.parquet",
        reweighted=folder / "reweighted.parquet",
        settings=settings(AgainSettings, headline=Headline("resid", "answer_last"), prompts=first, about=about),
    )


def test_the_job_writes_the_probability_of_yes_and_the_likeliest_digit(answered, tokenizer):
    ask_about_file(answered, "chosen", "asked")
    found = pl.read_parquet(answered / "asked.parquet")
    assert dict(found.schema) == {"id": pl.String, "p_true": pl.Float32, "confidence": pl.Float32}
    examples = pl.read_parquet(answered / "chosen.parquet").to_dicts()
    assert found["id"].to_list() == [example["id"] for example in examples]
    assert len(found) == 4
    model = tiny_model("llama", len(tokenizer), layers=2)
    for row, example in zip(found.rows(), examples, strict=True):
        text = few_shot_text(example["question"], example["answer"])
        logits = alone(model, tokenizer, text + "True:", [" yes", " no"])
        digits = alone(model, tokenizer, text + "Sure: ", list("0123456789")).tolist()
        kept = of_sums(1, 1.0, np.float32)
        # A chance moves by at most a quarter of the difference of two logits, of which each moves as far.
        moved = of_a_pass(model, len(tokenizer(text + "True:")["input_ids"]), logits) / 2
        assert_same(row[1:2], logits.double().softmax(0)[:1], moved + kept)
        assert_same(row[2:], [digits.index(max(digits)) / 9], kept)
    ask_about_file(answered, "chosen", "again")
    assert (answered / "again.parquet").read_bytes() == (answered / "asked.parquet").read_bytes()


@pytest.mark.slow
def test_the_job_writes_samples_and_writes_them_again_to_the_byte(answered, tokenizer):
    mine = settings(SampleSettings, samples=2, prompts=PromptSet("few_shot", {"first": TEXTS["few_shot"]["first"]}))
    files = answered / "chosen.parquet", answered / "tiny.json"
    sample_file(*files, answered / "samples.parquet", mine)
    found = pl.read_parquet(answered / "samples.parquet")
    assert dict(found.schema) == {"id": pl.String, "samples": pl.List(pl.String)}
    model = tiny_model("llama", len(tokenizer), layers=2)
    never = torch.zeros(len(tokenizer), dtype=torch.bool)
    prompt = few_shot_prompt(TEXTS["few_shot"]["first"])
    asked = {f"q{index}": question for index, question in enumerate(QUESTIONS)}
    for name, samples in found.rows():
        ids = tokenizer(f"{prompt.before}{asked[name]}{prompt.after}")["input_ids"]
        for text, uniforms in zip(samples, own_uniforms([name], 2)[0].tolist(), strict=True):
            said = tokenizer.decode(plain_sample(model, ids, uniforms, never), skip_special_tokens=True)
            assert text == said.split("\n")[0].strip()
    sample_file(*files, answered / "again.parquet", mine)
    assert (answered / "again.parquet").read_bytes() == (answered / "samples.parquet").read_bytes()


def test_without_examples_both_jobs_write_empty_tables(answered):
    files = answered / "none.parquet", answered / "tiny.json"
    write_table(files[0], read_table(answered / "chosen.parquet").slice(0, 0).replace_schema_metadata(), {})
    ask_about_file(answered, "none", "asked_none")
    first = PromptSet("few_shot", {"first": TEXTS["few_shot"]["first"]})
    sample_file(*files, answered / "samples_none.parquet", settings(SampleSettings, samples=3, prompts=first))
    assert [len(pl.read_parquet(answered / f"{name}_none.parquet")) for name in ("asked", "samples")] == [0, 0]
