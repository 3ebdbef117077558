"""Greedy answers, side by side: this engine and `model.generate`.

(a) engine  one shared prefix, packed tokens, a row leaves the batch at its stop token; the time includes the
            engine's check of the model and the computation of the prefix
(b) plain   `model.generate` with a cache on left-padded batches under an attention mask; it stops at the same
            tokens, and ends a batch when its last row has stopped

Both use the same weights, dtype, prompts and limit of new tokens. (b) runs batches of `rows` prompts on average; the
engine plans its own with the same budget of tokens.

With `--shape` weights and prompts are random: a prefix and suffixes of the bundled NQ set's lengths, and a random
fifth of the vocabulary as stop tokens, so that rows end at different times.
"""

import json
import statistics
import time
from pathlib import Path

import numpy as np
import torch
from common import ROOT, arguments, fast_dtype, machine, repeated, report, seconds
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.utils import logging

from anchorscope.answer.answers import answer_ends, stop_tokens
from anchorscope.answer.prompts import encode, few_shot_prompt
from anchorscope.engine.batches import plan_batches
from anchorscope.engine.door import Engine
from anchorscope.engine.work import Prompts, shared_tokens
from anchorscope.files.identity import read_json
from anchorscope.models.loading import random_model

RESOURCES = ROOT / "workflow" / "resources"
MAX_NEW_TOKENS = 32


def real_prompts(model: PreTrainedModel, folder: str, questions: Path, count: int):
    """The first `count` questions under the few-shot prompt, the tokens that all share, and the stop tokens."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = [json.loads(line)["question"] for line in questions.read_text(encoding="utf-8").splitlines()][:count]
    prompt = few_shot_prompt(read_json(RESOURCES / "prompts.json")["few_shot"]["first"])
    encoded = encode(tokenizer, prompt, texts)
    ids = [item.ids for item in encoded]
    return ids, shared_tokens(ids), stop_tokens(model, answer_ends(tokenizer))


def synthetic_prompts(model: PreTrainedModel, count: int, prefix: int = 119):
    """The same without a tokenizer: NQ's suffixes have 12 tokens on average with a standard deviation of 2."""
    draw = np.random.default_rng(0)
    size = model.get_output_embeddings().weight.shape[0]
    start = draw.integers(0, size, prefix).tolist()
    lengths = np.clip(np.rint(draw.normal(12, 2, count)), 8, 21).astype(int)
    stops = torch.from_numpy(draw.random(size) < 0.2).to(model.device)
    return [start + draw.integers(0, size, length).tolist() for length in lengths], prefix, stops


def run_engine(model: PreTrainedModel, prompts: list[list[int]], stops: Tensor, budget: int):
    said = Engine(model, budget).continued(Prompts(prompts, stops, MAX_NEW_TOKENS), what="answering")
    return [one.ids for (one,) in said]


@torch.inference_mode()
def run_plain(
    model: PreTrainedModel, prompts: list[list[int]], plan: list[list[int]], stops: Tensor, shared: int = 0
) -> list[list[int]]:
    """(b): with keys and values of the first `shared` tokens computed once, if any."""
    ends = stops.nonzero().flatten().tolist()
    stopping = set(ends)
    answers: list[list[int]] = [[] for _ in prompts]
    start = prompts[0][:shared]
    known = model(torch.tensor([start], device=model.device), use_cache=True).past_key_values if shared else None
    for batch in plan:
        longest = max(len(prompts[index]) for index in batch)
        pads = [longest - len(prompts[index]) for index in batch]
        ids = [start + [ends[0]] * pad + prompts[index][shared:] for index, pad in zip(batch, pads, strict=True)]
        mask = [[1] * shared + [0] * pad + [1] * (longest - shared - pad) for pad in pads]
        found = model.generate(
            input_ids=torch.tensor(ids, device=model.device),
            attention_mask=torch.tensor(mask, device=model.device),
            past_key_values=repeated(known, len(batch)),
            max_new_tokens=MAX_NEW_TOKENS,
            do_sample=False,
            eos_token_id=ends,
            pad_token_id=ends[0],
        )
        for index, tokens in zip(batch, found[:, longest:].tolist(), strict=True):
            stop = next((place for place, token in enumerate(tokens) if token in stopping), len(tokens))
            answers[index] = tokens[: stop + 1]
    return answers


def compare(name: str, model: PreTrainedModel, prompts: list[list[int]], shared: int, stops: Tensor, options) -> dict:
    sizes = [len(prompt) - shared + MAX_NEW_TOKENS for prompt in prompts]
    rows = options.rows or (256 if model.device.type == "cuda" else 44)
    budget = round(rows * sum(sizes) / len(sizes))
    plan = plan_batches(sizes, budget)
    few = prompts[: 2 * rows]  # to warm up
    run_engine(model, few, stops=stops, budget=budget)
    run_plain(model, few, plan=plan_batches(sizes[: len(few)], budget), stops=stops)
    answers, times = {}, {"engine": [], "plain": []}

    def engine() -> None:
        answers["engine"] = run_engine(model, prompts, stops=stops, budget=budget)

    def plain() -> None:
        answers["plain"] = run_plain(model, prompts, plan=plan, stops=stops)

    cores = {}
    for _ in range(options.repeats):  # in turn, so that both meet the machine in the same state
        for way, work in (("engine", engine), ("plain", plain)):
            before = time.process_time()
            times[way].append(seconds(work))
            cores[f"{way} cores"] = (time.process_time() - before) / times[way][-1]  # fewer where other work took them
    fast, slow = (statistics.median(times[way]) for way in ("engine", "plain"))
    tokens = {way: sum(len(answer) for answer in found) for way, found in answers.items()}
    same = sum(some == other for some, other in zip(answers["engine"], answers["plain"], strict=True))
    return {
        "model": name,
        "questions": len(prompts),
        "rows a batch": "-".join(dict.fromkeys(str(pick(map(len, plan))) for pick in (min, max))),
        "tokens/answer": tokens["engine"] / len(prompts),
        "engine q/s": len(prompts) / fast,
        "plain q/s": len(prompts) / slow,
        "engine / plain": slow / fast,
        "engine tok/s": tokens["engine"] / fast,
        "plain tok/s": tokens["plain"] / slow,
        "same answers": same / len(prompts),
        **cores,
    }


if __name__ == "__main__":
    options = arguments(
        model={"help": "a folder with weights and tokenizer; this or --shape"},
        shape={"help": "a published shape with random weights, such as llama-3.2-1b"},
        questions={"type": Path, "default": RESOURCES / "questions" / "nq-mini.jsonl", "help": "JSONL with `question`"},
        count={"type": int, "default": 512, "help": "questions"},
        rows={"type": int, "help": "rows per batch on average; by default 44 on a CPU and 256 on a GPU"},
        repeats={"type": int, "default": 3, "help": "runs of each; the median counts"},
        dtype={"default": "auto"},
        threads={"type": int, "default": torch.get_num_threads()},
    )
    if bool(options.model) == bool(options.shape):
        raise SystemExit("Give either --model or --shape.")
    torch.set_num_threads(options.threads)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = fast_dtype(options.dtype, device)
    if options.shape:
        model = random_model(RESOURCES / "shapes" / f"{options.shape}.json", seed=0, dtype=dtype, device=device)
        given = synthetic_prompts(model, options.count)
    else:
        model = AutoModelForCausalLM.from_pretrained(options.model, dtype=dtype).to(device)
        model = model.eval().requires_grad_(False)
        given = real_prompts(model, options.model, questions=options.questions, count=options.count)
    result = compare(Path(options.model or options.shape).name, model, *given, options=options)
    report([result], {"dtype": str(dtype), "new tokens at most": MAX_NEW_TOKENS, **machine()}, options.record)
