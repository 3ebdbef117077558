"""Scores of a model in hand are those of one plain forward pass per answer, and the command gives the same."""

import csv
import json
import logging
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

import anchorscope
from anchorscope import api
from anchorscope.answer.answers import grade
from anchorscope.answer.prompts import Prompt, encode, few_shot_prompt
from anchorscope.detect import detector as detector_module
from anchorscope.detect import score_file as score_file_module
from anchorscope.detect.detector import Detector, tokenise
from anchorscope.detect.detector_file import write_detector
from anchorscope.detect.score_file import read_rows, score_file
from anchorscope.models.describe import describe
from anchorscope.models.manifest import Manifest, tokenizer_hash
from planted_detector import LAYERS, SHOTS, about, manifest, probes
from rounding import assert_same, of_a_score
from small_things import ROOT, tiny_model

ASKED = {
    "Who wrote Dune?": "Frank Herbert",
    "What is the capital of France?": "It is Paris, I think.",
    "In which year did the first human walk on the surface of the Moon, and what was his name?": "1969",
    "Is Björk older than Sjón?": "Björk is older, because she was born in 1965",
    "what is the largest city of Japan": "東京 (Tokyo)",
    "which sign means love": "The answer is ❤️",
}
QUESTIONS, ANSWERS = list(ASKED), list(ASKED.values())


@pytest.fixture(scope="module")
def detector(tokenizer) -> Detector:
    return Detector(probes(), about(tokenizer_hash(tokenizer)))


@pytest.fixture(scope="module")
def model(tokenizer):
    return tiny_model("llama", len(tokenizer), layers=LAYERS)


def one_by_one(model, tokenizer, detector: Detector, layer: int) -> tuple[list[float], float]:
    """One plain forward pass per answer. Prompt and answer are tokenised apart; `grade` finds the token to read.

    And the rounding.
    """
    learnt, prompt, found, states, tokens = detector.probes, few_shot_prompt(SHOTS), [], [], 0
    block = model.get_decoder().layers[layer]
    part = {"resid": block, "attn": block.self_attn.o_proj, "mlp": block.mlp}[detector.about.component]
    kept = []
    handle = part.register_forward_hook(
        lambda module, args, out: kept.append(out[0] if isinstance(out, tuple) else out)
    )
    for question, answer in ASKED.items():
        before = encode(tokenizer, prompt, [question])[0].ids
        ids = tokenizer(f" {answer}")["input_ids"]
        row = grade(tokenizer, ids, gold=[], question=question)
        places = {"answer_last": "exact_last", "final": "answer_final", "before_answer": "exact_first"}
        place = len(before) + row[places[detector.about.position]] - (detector.about.position == "before_answer")
        with torch.inference_mode():
            model(torch.tensor([before + ids]), logits_to_keep=1)
        state = kept.pop()[0, place]
        states, tokens = [*states, state], max(tokens, len(before + ids))
        units = (state - learnt.mean[layer]) / learnt.scale[layer]
        found.append(1 / (1 + np.exp(-float(units @ learnt.weight[layer] + learnt.bias[layer]))))
    handle.remove()
    return found, of_a_score(model, tokens, learnt, layer, torch.stack(states))


@pytest.mark.parametrize(
    ("few", "family", "component", "position", "layer"),
    [
        (few, *read) if few == now else pytest.param(few, *read, marks=pytest.mark.slow)
        for now, *read in (  # each way of running has its share in every run
            (True, "llama", "resid", "answer_last", None),
            (False, "llama", "resid", "answer_last", LAYERS - 1),
            (True, "llama", "attn", "final", 0),
            (False, "llama", "mlp", "before_answer", 1),
            (False, "gemma3", "resid", "answer_last", None),
        )
        for few in (True, False)
    ],
)
def test_scores_are_those_of_one_plain_pass_per_answer(family, component, position, layer, few, tokenizer, monkeypatch):
    monkeypatch.setattr(detector_module, "FEW_TOKENS", 10**6 if few else 0)
    model = tiny_model(family, len(tokenizer), layers=LAYERS)
    kind = model.config.model_type
    described = about(tokenizer_hash(tokenizer), architecture=kind, component=component, position=position)
    detector = Detector(probes(), described)
    found = detector.score(model, tokenizer, QUESTIONS, ANSWERS, layer=layer)
    expected, rounding = one_by_one(model, tokenizer, detector, described.layer if layer is None else layer)
    assert (model in detector.tried) != few
    assert_same(found, expected, rounding)
    assert np.ptp(found) > 0.05, "they differ by more than rounding"


def test_neither_order_batches_nor_portions_change_a_score(model, tokenizer, detector, monkeypatch):
    monkeypatch.setattr(detector_module, "FEW_TOKENS", 0)  # where one by one, there are no batches
    expected = detector.score(model, tokenizer, QUESTIONS, ANSWERS)
    _, rounding = one_by_one(model, tokenizer, detector, detector.about.layer)
    backwards = detector.score(model, tokenizer, QUESTIONS[::-1], ANSWERS[::-1], batch_tokens=40)
    assert_same(backwards[::-1], expected, rounding)
    alone = detector.score(model, tokenizer, QUESTIONS[:1], ANSWERS[:1])
    assert_same(alone, expected[:1], rounding)
    monkeypatch.setattr(detector_module, "PORTION", 2)
    assert_same(detector.score(model, tokenizer, QUESTIONS, ANSWERS), expected, rounding)


def test_an_empty_answer_and_a_refusal_have_no_score_and_only_the_first_line_is_read(
    model, tokenizer, detector, caplog
):
    answers = ["", "I don't know.", "Frank Herbert", "  Frank Herbert \nQuestion: who", "?!"]
    with caplog.at_level(logging.INFO, logger="anchorscope"):
        found = detector.score(model, tokenizer, QUESTIONS[:1] * 5, answers)
    assert np.isnan(found).tolist() == [True, True, False, False, True]
    _, rounding = one_by_one(model, tokenizer, detector, detector.about.layer)
    assert_same(found[3:4], found[2:3], rounding)
    assert "3 of 5 answers are empty or refusals and get no score" in caplog.text
    assert "answers are taken as given; the detector learnt from greedy answers of tiny itself" in caplog.text
    assert len(detector.score(model, tokenizer, [], [])) == 0
    assert np.isnan(detector.score(model, tokenizer, ["x"], [""])).all()


@pytest.mark.parametrize("after", ["\nAnswer:", "<|im_end|>\n<|im_start|>assistant\n"])
def test_an_answer_has_the_tokens_that_the_model_would_have_written(after, tokenizer):
    """A model begins with a space after a prompt that ends in none, and with a word after one that ends a line."""
    prompt = Prompt("Question: ", after, special_tokens=True)
    space = "" if after.endswith("\n") else " "
    (given,) = tokenise(tokenizer, prompt, QUESTIONS, ANSWERS)
    assert sorted(one.number for one in given) == list(range(len(ASKED)))
    for one in given:
        question, answer = QUESTIONS[one.number], ANSWERS[one.number]
        ids = tokenizer(space + answer)["input_ids"]
        before = encode(tokenizer, prompt, [question])[0].ids
        assert one.ids == before + ids
        row = grade(tokenizer, ids, gold=[], question=question)
        places = {"answer_last": "exact_last", "final": "answer_final"}
        for position, column in places.items():
            assert one.token_at(position) == len(before) + row[column]


def test_where_prompt_and_answer_would_merge_the_prompts_own_tokens_stay():
    """With the merge of a colon and a space, the prompt's last token would be another one."""
    letters = {letter: number for number, letter in enumerate([":", " ", "A", "b", "?", ": ", " A"])}
    backend = Tokenizer(BPE(letters, [(":", " "), (" ", "A")]))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Split("?", "isolated"), decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    ((one,),) = tokenise(tokenizer, Prompt("b", ":", special_tokens=True), ["b?"], ["Abb"])
    assert tokenizer("bb?: Abb")["input_ids"] == [3, 3, 4, 5, 2, 3, 3], "the colon has taken the space"
    assert one.ids == [3, 3, 4, 0, 6, 3, 3]
    assert one.first == 4
    assert one.offsets == [(0, 2), (2, 3), (3, 4)]


def test_what_a_tokenizer_did_before_is_no_reason_to_refuse_it(model, tokenizer, detector):
    tokenizer.backend_tokenizer.enable_padding(length=400)
    tokenizer.backend_tokenizer.enable_truncation(2)
    assert np.isfinite(detector.score(model, tokenizer, QUESTIONS, ANSWERS)).all()


def test_the_model_is_left_as_it_was(model, tokenizer, detector):
    ids = torch.arange(5, 25)[None]
    before, attention = model(ids).logits, model.config._attn_implementation
    model.train()
    detector.score(model, tokenizer, QUESTIONS, ANSWERS)
    assert model.training
    model.eval()
    assert model.config._attn_implementation == attention
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert torch.equal(model(ids).logits, before)


def test_what_the_detector_is_not_for_is_refused_in_one_sentence(model, tokenizer, detector):
    def refused(match: str, **changed: object) -> None:
        given = {"model": model, "tokenizer": tokenizer, "questions": ["Who?"], "answers": ["Me"]} | changed
        with pytest.raises(ValueError, match=match) as raised:
            detector.score(**given)
        assert "\n" not in str(raised.value)

    refused("for tiny, whose num_hidden_layers is 4, but this model's is 2", model=tiny_model("llama", 200, layers=2))
    refused("whose model_type is llama, but this model's is qwen3", model=tiny_model("qwen3", 200))
    refused("computes in float64; load it with one of float32", model=tiny_model("llama", 200).double())
    other = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(BPE({"a": 0}, [])))
    refused(f"with the tokenizer {detector.about.tokenizer}, but this tokenizer is", tokenizer=other)
    refused("There are 1 questions and 2 answers; each answer needs one", answers=["Me", "You"])
    refused("answers is one text; give a list of them", answers="Me")
    refused("layer is 4; it must be a whole number from 0 to 3", layer=4)
    refused("The answer 'x<|im_end|>' holds '<|im_end|>', a control token", answers=["x<|im_end|>"])
    refused("has 5.. tokens, more than the model's 512 positions", answers=["why " * 500])


def test_states_that_are_not_finite_are_refused(tokenizer, detector):
    broken = tiny_model("llama", len(tokenizer), layers=LAYERS)
    mark = tokenizer(" Herbert")["input_ids"][-1]
    broken.get_input_embeddings().weight[mark] = torch.inf
    with pytest.raises(ValueError, match=r"answer 2, 'Frank Herbert', are not finite"):
        detector.score(broken, tokenizer, ["Who wrote Emma?", "Who wrote Dune?"], ["Jane Austen", "Frank Herbert"])


def test_a_bad_line_is_refused_with_its_number(tmp_path):
    good = json.dumps({"question": "Who?", "answer": "Me"})
    file = tmp_path / "asked.jsonl"
    for bad, sentence in {
        "{": "cannot be read as JSON",
        "[1]": "is not a JSON object",
        '{"question": "Who?"}': "has no text as its 'answer'",
        '{"question": 3, "answer": "Me"}': "has no text as its 'question'",
        '{"question": "Who?", "answer": "Me", "hallucinated": 1}': "has a key 'hallucinated' already",
        '{"question": " \\n ", "answer": "Me"}': "has an empty question",
        '{"question": "Who?", "answer": "Me", "n": NaN}': "holds a number that is not finite",
        '{"question": "Who?", "answer": "Me", "n": [1e999]}': "holds a number that is not finite",
    }.items():
        file.write_text(f"{good}\n\n{bad}\n")
        with pytest.raises(ValueError, match=f"^Line 3 of .*asked.jsonl {sentence}"):
            read_rows(str(file))
    with pytest.raises(ValueError, match=r"gone\.jsonl does not exist"):
        read_rows(str(tmp_path / "gone.jsonl"))


CSV_HEADER = b"id,question,answer\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            b"question,said\nWho?,Me\n",
            "^The first line of .*asked.csv names no column 'answer'; each row needs question and",
        ),
        (
            b"question,answer,hallucinated\na,b,1\n",
            "^The first line of .*asked.csv names a column 'hallucinated'; rename",
        ),
        (CSV_HEADER, r"asked.csv has no rows\.$"),
        (CSV_HEADER + b'1,"Who\nwas it?",Me\n\n2,,Me\n', r"^Line 5 of .*asked.csv has an empty question\.$"),
        (CSV_HEADER + b"1,Who?,Me,too\n", r"^Line 2 of .*asked.csv has 4 cells, where its first line has 3\.$"),
        (CSV_HEADER + b"1,\xff,Me\n", "asked.csv is not a UTF-8 text: "),
    ],
    ids=["no answers", "scored already", "no rows", "no question", "cells", "not UTF-8"],
)
def test_a_bad_csv_file_is_refused_in_one_sentence(content, said, tmp_path):
    (tmp_path / "asked.csv").write_bytes(content)
    with pytest.raises(ValueError, match=said) as raised:
        read_rows(str(tmp_path / "asked.csv"))
    assert "\n" not in str(raised.value)


def test_csv_has_the_rows_that_json_lines_have_with_every_cell_as_text(tmp_path):
    rows = [
        {"id": "1", "question": "Who wrote\n“Emma”, and when?", "answer": "Jane Austen, 1815", "note": None},
        {"id": "2", "question": "Who?", "answer": "", "note": "empty"},
    ]
    (tmp_path / "asked.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    for name, mark in {"asked.csv": "utf-8", "marked.CSV": "utf-8-sig"}.items():
        with open(tmp_path / name, "w", newline="", encoding=mark) as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        assert read_rows(str(tmp_path / name)) == rows == read_rows(str(tmp_path / "asked.jsonl"))


def test_a_byte_order_mark_is_skipped(tmp_path):
    file = tmp_path / "asked.jsonl"
    file.write_text('{"question": "Who?", "answer": "Me"}\n', encoding="utf-8-sig")
    assert read_rows(str(file)) == [{"question": "Who?", "answer": "Me"}]


@pytest.fixture(scope="module")
def files(tmp_path_factory, model, tokenizer, detector):
    """A model's folder and a detector for it."""
    folder = tmp_path_factory.mktemp("score")
    model.save_pretrained(folder / "tiny")
    tokenizer.save_pretrained(folder / "tiny")
    assert api.load_detector is anchorscope.load_detector
    kept = PreTrainedTokenizerFast.from_pretrained(folder / "tiny")
    write_detector(folder / "tiny.safetensors", detector.probes, about(tokenizer_hash(kept)), {})
    return folder, kept


def test_the_command_reads_the_standard_input_and_gives_what_python_gives(files, model):
    folder, tokenizer = files
    rows = [{"question": question, "answer": answer, "id": n} for n, (question, answer) in enumerate(ASKED.items())]
    rows.append({"question": "Who?", "answer": "", "id": 6})
    command = [sys.executable, "-m", "anchorscope", "score", "--detector", "tiny.safetensors", "--model", "tiny"]
    lines = "".join(f"{json.dumps(row)}\n" for row in rows)
    options = ["--dtype", "float32", "--threads", "1", "-"]
    where = os.environ | {"CUDA_VISIBLE_DEVICES": ""}  # the processor, like the model here
    done = subprocess.run([*command, *options], cwd=folder, input=lines, capture_output=True, text=True, env=where)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    scores = [row.pop("hallucinated") for row in found]
    assert found == rows
    assert scores.pop() is None
    detector = anchorscope.load_detector(folder / "tiny.safetensors")
    _, rounding = one_by_one(model, tokenizer, detector, detector.about.layer)
    assert_same(scores, detector.score(model, tokenizer, QUESTIONS, ANSWERS), rounding)
    assert "1 of 7 answers are empty or refusals" in done.stderr
    assert not (folder / ".hashes").exists(), "nothing is left beside a folder that is not ours"


def test_a_manifest_of_other_weights_is_refused_before_they_are_loaded(files):
    folder, tokenizer = files
    replace(manifest(tokenizer_hash(tokenizer)), revision="another").write(folder / "tiny.json")
    (folder / "asked.jsonl").write_text('{"question": "Who?", "answer": "Me"}\n')
    given = {"questions": str(folder / "asked.jsonl"), "detector": folder / "tiny.safetensors"}
    settings = {"dtype": "float32", "threads": 1, "batch_tokens": None}
    with pytest.raises(ValueError, match=r"for the weights fedcba9876543210 of tiny, but .*tiny\.json has another"):
        score_file(**given, model=folder / "tiny.json", target=None, **settings)
    with pytest.raises(ValueError, match=r"gone\.json does not exist; name a model's folder, or its manifest"):
        score_file(**given, model=folder / "gone.json", target=None, **settings)


def test_scores_go_through_links_to_a_plain_file_and_to_nothing_else(files, monkeypatch):
    folder, _ = files
    (folder / "asked.jsonl").write_text('{"question": "Who?", "answer": "Me"}\n')
    (folder / "fifo").unlink(missing_ok=True)
    os.mkfifo(folder / "fifo")
    (folder / "link").unlink(missing_ok=True)
    (folder / "link").symlink_to("behind.jsonl")
    given = {
        "questions": str(folder / "asked.jsonl"),
        "detector": folder / "tiny.safetensors",
        "model": folder / "tiny",
    }
    settings = {"dtype": "float32", "threads": 1, "batch_tokens": None}
    with monkeypatch.context() as patch:
        patch.setattr(score_file_module, "read_rows", lambda *_: pytest.fail("work began before"))
        for target, kind in {"tiny": "a folder", "fifo": "not a plain file but a fifo, socket or device"}.items():
            with pytest.raises(ValueError, match=f"{target} is {kind}; name a plain file"):
                score_file(**given, target=folder / target, **settings)
    score_file(**given, target=folder / "link", **settings)
    assert (folder / "link").is_symlink()
    found = json.loads((folder / "behind.jsonl").read_text())
    assert 0 < found["hallucinated"] < 1
    (folder / "asked.csv").write_text("question,answer\nWho?,Me\n")
    score_file(**given | {"questions": str(folder / "asked.csv")}, target=folder / "link", **settings)
    assert json.loads((folder / "behind.jsonl").read_text()) == found, "of CSV come the same lines"


def test_a_detector_is_used_from_any_folder_and_its_model_is_found_beside_the_manifest(files, tmp_path, monkeypatch):
    folder, _ = files
    run = tmp_path / "run"
    (run / "results/models").mkdir(parents=True)
    shutil.copytree(folder / "tiny", run / "results/models/tiny")
    monkeypatch.chdir(run)
    describe(Path("results/models/tiny"), name="tiny", source={}).write("results/models/tiny.json")
    described = Manifest.read("results/models/tiny.json")
    assert described.path == "results/models/tiny", "within the run's folder it is as it was written"
    (tmp_path / "elsewhere/results/models/tiny").mkdir(parents=True)  # another run's model of the same name
    monkeypatch.chdir(tmp_path / "elsewhere")
    found = Manifest.read(run / "results/models/tiny.json")
    assert Path(found.path).samefile(run / "results/models/tiny")
    assert replace(found, path=described.path) == described


@pytest.mark.parametrize("name", ["tiny/config.json", "tiny.safetensors", "tiny/model.safetensors"])
def test_what_is_no_manifest_is_refused_in_one_sentence(files, name):
    folder, _ = files
    with pytest.raises(ValueError, match=r"is not a model's manifest, such as results/models/mine\.json\.$"):
        Manifest.read(folder / name)


def test_a_question_scores_the_same_however_its_file_spaced_it(model, tokenizer, detector):
    plain = detector.score(model, tokenizer, QUESTIONS, ANSWERS)
    spaced = detector.score(model, tokenizer, [f"  {question}\n" for question in QUESTIONS], ANSWERS)
    np.testing.assert_array_equal(spaced, plain)
    with pytest.raises(ValueError, match=r"^Question 2 is empty\.$"):
        detector.score(model, tokenizer, ["Who?", " "], ["Me", "You"])


def test_a_detector_of_another_dtype_says_so(model, tokenizer, detector, caplog):
    other = replace(detector, about=replace(detector.about, dtype="bfloat16"))
    other.score(model, tokenizer, ["Who?"], ["Me"])
    assert "the detector learnt from bfloat16; in float32 probabilities differ a little" in caplog.text


def test_no_threads_are_refused_by_the_command():
    command = [sys.executable, "-m", "anchorscope", "score", "--detector", "x", "--model", "x", "--threads", "0", "-"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("--threads: 0 is not a whole number above zero")


def test_the_package_alone_imports_no_torch():
    code = "import anchorscope, sys; assert 'torch' not in sys.modules; anchorscope.nothing"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "workflow", capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1] == "AttributeError: module 'anchorscope' has no attribute 'nothing'"
