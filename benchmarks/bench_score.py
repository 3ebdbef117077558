"""Scoring answers with a detector, beside extraction's clean pass over the same questions and answers.

(a) extract   the clean pass of the headline alone, vectors copied to the host and dropped, sequences made before
    prepared  the same, with the making of the sequences and the trial that finds the path, as a job does both
(b) score     `Detector.score`, from texts to probabilities: checks, tokens, exact answers, passes, probe; reading the
              last layer, so that all are run, and reading the middle one. Its trial is made once, by the call before

The questions are the bundled ones, answered with their first accepted answer, again and again. Random weights of a
published shape are drawn on the device; `--model` takes a folder with real ones. The tokenizer is trained on the
questions, so that nothing else is needed.
"""

import argparse
import json
from collections.abc import Iterator
from itertools import chain, cycle, islice
from pathlib import Path

import pyarrow as pa
import torch
from bench_extract import Nowhere, load
from common import ROOT, arguments, fast_dtype, machine, report, seconds
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from anchorscope.answer.answers import grade
from anchorscope.answer.prompts import Prompt, PromptSet
from anchorscope.detect.detector import Detector, tokenise
from anchorscope.detect.detector_file import About, DetectorProbes
from anchorscope.engine.door import Engine
from anchorscope.extract.axes import EXACT, HEADLINE
from anchorscope.extract.job import run_workload
from anchorscope.extract.sequences import Workload, build_workload
from anchorscope.models.manifest import tokenizer_hash

QUESTIONS = ROOT / "workflow" / "resources" / "questions"
VOCABULARY = 16000


def bundled() -> Iterator[tuple[str, str]]:
    """Every bundled question with its first accepted answer."""
    for file in sorted(QUESTIONS.glob("*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            yield row["question"], first_text(row.get("possible_answers", row.get("answer")))


def first_text(accepted: object) -> str:
    if isinstance(accepted, dict):
        return accepted["value"]
    if isinstance(accepted, str):
        return json.loads(accepted)[0] if accepted.startswith("[") else accepted
    return accepted[0]


def trained_tokenizer(texts: list[str]) -> PreTrainedTokenizerBase:
    """A tokenizer of the common kind: pairs of bytes, words with the space before them."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=alphabet))
    return PreTrainedTokenizerFast(tokenizer_object=backend)


def random_detector(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompts: PromptSet) -> Detector:
    config = model.config.get_text_config()
    layers, width = config.num_hidden_layers, config.hidden_size
    one, flat = torch.ones(layers, width), torch.zeros(layers)
    about = About(
        model="random",
        weights="random",
        revision="",
        architecture=config.model_type,
        tokenizer=tokenizer_hash(tokenizer),
        style=prompts.style,
        prompt=prompts.texts["first"],
        component=HEADLINE.components[0],
        position=HEADLINE.positions[0],
        layer=layers - 1,
        datasets=[],
        examples=0,
    )
    return Detector(DetectorProbes(torch.randn(layers, width) / width, 0 * one, one, flat, flat, flat), about)


def answered(tokenizer: PreTrainedTokenizerBase, prompt: Prompt, questions: list[str], answers: list[str]) -> pa.Table:
    """The same questions and answers as the answer stage writes them."""
    rows = []
    for one in chain.from_iterable(tokenise(tokenizer, prompt, questions, answers)):
        row = grade(tokenizer, one.ids[one.first :], gold=[], question=one.question)
        names = {
            "id": str(one.number),
            "question": one.question,
            "question_form": None,
            "subject": None,
            "popularity": None,
            "spans": [],
        }
        rows.append({**row, **names, "right": True})
    return pa.Table.from_pylist([row for row in rows if row["exact_last"] is not None])


def compare(model: PreTrainedModel, options: argparse.Namespace) -> dict:
    pairs = list(bundled())
    questions, answers = map(list, zip(*islice(cycle(pairs), options.answers), strict=True))
    prompts = PromptSet.bundled("few_shot")
    tokenizer = trained_tokenizer([*questions, *answers, json.dumps(prompts.texts)])
    prompt = prompts.built(tokenizer)["first"]
    detector, layers = random_detector(model, tokenizer, prompts), model.config.num_hidden_layers
    table = answered(tokenizer, prompt, questions, answers)

    def sequences() -> Workload:
        return build_workload(
            tokenizer, {"first": prompt}, table, passes=[("first", "clean")], positions=HEADLINE.positions
        )

    workload = sequences()
    path = Engine(model).prepare(workload.work(HEADLINE, layers, EXACT))
    runs = {
        "extract": lambda: run_workload(Engine(model), workload, Nowhere(HEADLINE), path=path),
        "prepared": lambda: run_workload(Engine(model), sequences(), Nowhere(HEADLINE)),
        "score": lambda: detector.score(model, tokenizer, questions, answers),
        "score middle": lambda: detector.score(model, tokenizer, questions, answers, layer=layers // 2),
    }
    rates = {}
    for name, run in runs.items():
        run()  # warm
        rates[name] = len(table) / min(seconds(run) for _ in range(options.repeats))
    return {
        "answers": len(table),
        **{f"{name} ex/s": rate for name, rate in rates.items()},
        "score / extract": rates["score"] / rates["extract"],
        "score / prepared": rates["score"] / rates["prepared"],
        "middle / extract": rates["score middle"] / rates["extract"],
    }


if __name__ == "__main__":
    options = arguments(
        shape={"default": "llama-3.2-1b", "help": "a published shape, with random weights"},
        model={"help": "a folder with a real model, instead of a shape"},
        answers={"type": int, "default": 4096},
        repeats={"type": int, "default": 3},
        dtype={"default": "auto"},
        threads={"type": int, "default": torch.get_num_threads()},
    )
    torch.set_num_threads(options.threads)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = fast_dtype(options.dtype, device)
    if options.model:
        model = AutoModelForCausalLM.from_pretrained(options.model, dtype=dtype).to(device).eval().requires_grad_(False)
    else:
        model = load(options.shape, dtype, device)
    result = {"model": Path(options.model or options.shape).name, **compare(model, options)}
    report([result], {"dtype": str(dtype), **machine()}, options.record)
