"""Samples at temperature 1, side by side: this engine and as many runs of `model.generate`.

(a) engine  one shared prefix, the tokens of each question once for all of its samples, a sample leaves the batch at its
            stop token; the time includes the engine's check of the model and the computation of the prefix
(b) plain   one run of `model.generate(do_sample=True)` for each sample: whole prompts, left-padded batches under an
            attention mask, with a cache; it stops at the same tokens, and ends a batch when its last row has stopped

Both use the same weights, dtype, prompts and limit of new tokens, and draw from the whole vocabulary. The engine makes
its batches as the stage does; `--rows` is the size of the batches of (b). Lengths of samples are random, so both report
how many tokens they drew. Runs of (b) cost alike: with `--runs` only some of them are made, and their mean counts
for the others.
"""

import time
from pathlib import Path

import numpy as np
import torch
from bench_generate import MAX_NEW_TOKENS, RESOURCES, real_prompts
from common import arguments, fast_dtype, machine, report, seconds
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging

from anchorscope.engine.door import Engine
from anchorscope.engine.work import Prompts


def run_engine(model: PreTrainedModel, prompts: list[list[int]], stops: Tensor, count: int) -> int:
    """How many tokens were drawn."""
    uniforms = torch.from_numpy(np.random.default_rng(0).random((len(prompts), count, MAX_NEW_TOKENS)))
    said = Engine(model).continued(Prompts(prompts, stops, MAX_NEW_TOKENS, uniforms), what="drawing")
    return sum(len(one.ids) for mine in said for one in mine)


def run_plain(model: PreTrainedModel, prompts: list[list[int]], stops: Tensor, rows: int) -> int:
    """The same for one run of `model.generate`."""
    ends, ordered, drawn = stops.nonzero().flatten().tolist(), sorted(prompts, key=len), 0
    for start in range(0, len(ordered), rows):
        batch = ordered[start : start + rows]
        longest = max(map(len, batch))
        pads = [longest - len(prompt) for prompt in batch]
        ids = [[ends[0]] * pad + prompt for pad, prompt in zip(pads, batch, strict=True)]
        mask = [[0] * pad + [1] * (longest - pad) for pad in pads]
        found = model.generate(
            input_ids=torch.tensor(ids, device=model.device),
            attention_mask=torch.tensor(mask, device=model.device),
            max_new_tokens=MAX_NEW_TOKENS,
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            eos_token_id=ends,
            pad_token_id=ends[0],
        )
        stopped = stops[found[:, longest:]].int()
        drawn += int(torch.where(stopped.any(dim=1), stopped.argmax(dim=1) + 1, stopped.shape[1]).sum())
    return drawn


def compare(name: str, model: PreTrainedModel, prompts: list[list[int]], stops: Tensor, options) -> dict:
    tokens, times, cores = {"engine": 0, "plain": 0}, {"engine": 0.0, "plain": 0.0}, {}
    few = prompts[:8]  # to warm up
    run_engine(model, few, stops=stops, count=2)
    run_plain(model, few, stops=stops, rows=options.rows)

    def engine() -> None:
        tokens["engine"] += run_engine(model, prompts, stops=stops, count=options.samples)

    def plain() -> None:
        tokens["plain"] += run_plain(model, prompts, stops=stops, rows=options.rows)

    runs = options.runs or options.samples
    torch.manual_seed(0)
    for way, work, repeats in (("engine", engine, 1), ("plain", plain, runs)):
        before = time.process_time()
        times[way] = sum(seconds(work) for _ in range(repeats))
        cores[f"{way} cores"] = (time.process_time() - before) / times[way]  # fewer where other work took them
    whole = times["plain"] / runs * options.samples
    drawn = len(prompts) * options.samples
    return {
        "model": name,
        "questions": len(prompts),
        "samples": options.samples,
        "plain runs made": runs,
        "rows a plain batch": options.rows,
        "engine s": times["engine"],
        "plain s": whole,
        "engine / plain": whole / times["engine"],
        "engine tokens/sample": tokens["engine"] / drawn,
        "plain tokens/sample": tokens["plain"] / (len(prompts) * runs),
        **cores,
    }


if __name__ == "__main__":
    options = arguments(
        model={"required": True, "help": "a folder with weights and tokenizer"},
        questions={"type": int, "default": 400, "help": "of the bundled NQ set"},
        samples={"type": int, "default": 10, "help": "of each question"},
        runs={"type": int, "help": "runs of `model.generate`; by default as many as samples"},
        rows={"type": int, "default": 44, "help": "rows per batch of `model.generate`"},
        dtype={"default": "auto"},
        threads={"type": int, "default": torch.get_num_threads()},
    )
    torch.set_num_threads(options.threads)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = fast_dtype(options.dtype, device)
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=dtype).to(device).eval().requires_grad_(False)
    questions = RESOURCES / "questions" / "nq-mini.jsonl"
    prompts, _, stops = real_prompts(model, options.model, questions=questions, count=options.questions)
    result = compare(Path(options.model).name, model, prompts, stops, options=options)
    report([result], {"dtype": str(dtype), "new tokens at most": MAX_NEW_TOKENS, **machine()}, options.record)
