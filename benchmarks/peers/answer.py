"""Greedy answers, side by side: Anchorscope, `model.generate` and transformers' continuous batching.

engine            as the answer stage runs it; the time includes its check of the model
generate          left-padded batches with a cache
generate, prefix  the same, with keys and values of what all prompts begin with computed once
generate_batch    continuous batching, with shared pages for what prompts begin with; it takes the settings that were
                  its fastest in a warm-up. On a CPU its cache is sized to the prompts, or it would fill the memory.

All have the same weights, dtype, threads, prompts, stop tokens and limit of new tokens. Both ways of `generate` run the
same batches, and the engine plans its own. Needs no library but transformers.
"""

import argparse
import copy
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel
from transformers.utils import logging

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench_generate import MAX_NEW_TOKENS, real_prompts, run_engine, run_plain, synthetic_prompts
from common import arguments, fast_dtype, machine, report, seconds
from subjects import RESOURCES, load_model

from anchorscope.engine.batches import plan_batches

Answers = list[list[int]]
PAGES = (256, 32)  # tokens; the first is the default, the second also fits into a short prefix


def choices(device: torch.device) -> list[dict]:
    """Settings of continuous batching that may be the fastest: recording CUDA graphs takes time, too."""
    graphs: list[dict] = [{}, {"use_cuda_graph": False}] if device.type == "cuda" else [{}]
    return [{"page_size": page, **more} for page in PAGES for more in graphs]


def sized(prompts: Answers, page_size: int, device: torch.device) -> dict:
    """How large its cache is: on a GPU it decides itself."""
    if device.type == "cuda":
        return {}
    pages = sum(-(-(len(prompt) + MAX_NEW_TOKENS) // page_size) for prompt in prompts)
    return {"num_blocks": pages, "max_batch_tokens": 2048}


def run_continuous(model: PreTrainedModel, prompts: Answers, stops: Tensor, choice: dict) -> Answers:
    from transformers.generation import ContinuousBatchingConfig

    ends = stops.nonzero().flatten().tolist()
    found = model.generate_batch(
        inputs=prompts,
        generation_config=GenerationConfig(
            max_new_tokens=MAX_NEW_TOKENS, do_sample=False, eos_token_id=ends, pad_token_id=ends[0]
        ),
        continuous_batching_config=ContinuousBatchingConfig(
            **choice, **sized(prompts, choice["page_size"], model.device)
        ),
        progress_bar=False,
    )
    if len(found) < len(prompts):
        raise RuntimeError(f"it answered {len(found)} of {len(prompts)} prompts")
    return [one.generated_tokens for one in sorted(found.values(), key=lambda one: int(one.request_id[4:]))]


def continuous(model: PreTrainedModel, prompts: Answers, few: Answers, stops: Tensor) -> Callable[[], Answers]:
    """Continuous batching on a copy of the model, with the settings that were its fastest."""
    mine = copy.deepcopy(model)
    took = []
    for choice in choices(model.device):
        run_continuous(mine, few, stops=stops, choice=choice)
        took.append((seconds(lambda: run_continuous(mine, few, stops=stops, choice=choice)), choice))  # noqa: B023
    return partial(run_continuous, mine, prompts, stops=stops, choice=min(took, key=lambda one: one[0])[1])


def ways(
    model: PreTrainedModel, prompts: Answers, shared: int, stops: Tensor, rows: int
) -> tuple[dict[str, Callable[[], Answers]], list[str]]:
    """Everything that can be measured here, warmed up, and why the rest cannot."""
    sizes = [len(prompt) - shared + MAX_NEW_TOKENS for prompt in prompts]
    budget = round(rows * sum(sizes) / len(sizes))
    few = prompts[:rows]

    def of(some: Answers) -> dict[str, Callable[[], Answers]]:
        plan = plan_batches(sizes[: len(some)], budget)
        return {
            "engine": partial(run_engine, model, some, stops=stops, budget=budget),
            "generate": partial(run_plain, model, some, plan=plan, stops=stops),
            "generate, prefix": partial(run_plain, model, some, plan=plan, stops=stops, shared=shared),
        }

    for work in of(few).values():
        work()
    found, left_out = of(prompts), []
    try:
        found["generate_batch"] = continuous(model, prompts, few, stops)
    except (ImportError, RuntimeError, ValueError) as error:
        left_out.append(f"generate_batch: {error}")
    return found, left_out


def measure(found: dict[str, Callable[[], Answers]], repeats: int) -> list[dict]:
    """A row for each way."""
    times: dict[str, list[float]] = {name: [] for name in found}
    busy = dict.fromkeys(found, 0.0)
    answers: dict[str, Answers] = {}
    for _ in range(repeats):  # in turn, so that all meet the machine in the same state
        for name, work in found.items():
            before = time.process_time()
            times[name].append(seconds(lambda: answers.update({name: work()})))  # noqa: B023
            busy[name] += time.process_time() - before
    ours, fast = answers["engine"], statistics.median(times["engine"])
    return [
        {
            "way": name,
            "questions/s": len(ours) / statistics.median(took),
            "engine / way": statistics.median(took) / fast,
            "slowest / fastest": max(took) / min(took),
            "cores": busy[name] / sum(took),  # fewer where other work took them
            "same answers": sum(one == other for one, other in zip(ours, answers[name], strict=True)) / len(ours),
        }
        for name, took in times.items()
    ]


def main() -> None:
    cuda = torch.cuda.is_available()
    options = arguments(
        model={"help": "a folder with weights and tokenizer; this or --shape"},
        shape={"help": "a published shape with random weights, such as llama-3.2-1b"},
        questions={"type": Path, "default": RESOURCES / "questions" / "nq-mini.jsonl", "help": "JSONL with `question`"},
        count={"type": int, "default": 512 if cuda else 88, "help": "questions"},
        rows={"type": int, "default": 256 if cuda else 44, "help": "rows per batch on average"},
        repeats={"type": int, "default": 3, "help": "rounds; the median counts"},
        dtype={"default": "float32"},
        threads={"type": int, "default": torch.get_num_threads()},
    )
    if bool(options.model) == bool(options.shape):
        raise SystemExit("Give either --model or --shape.")
    torch.set_num_threads(options.threads)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    device = torch.device("cuda" if cuda else "cpu")
    dtype = fast_dtype(options.dtype, device)
    model = load_model(options.model, options.shape, dtype, device)
    prompts, shared, stops = asked(model, options)
    found, left_out = ways(model, prompts, shared, stops=stops, rows=options.rows)
    about = {
        "model": Path(options.model or options.shape).name,
        "questions": len(prompts),
        "new tokens at most": MAX_NEW_TOKENS,
        "dtype": str(dtype),
        "left out": left_out,
    }
    report(measure(found, options.repeats), about | machine(), options.record)


def asked(model: PreTrainedModel, options: argparse.Namespace) -> tuple[Answers, int, Tensor]:
    """The prompts, how many tokens all begin with, and the stop tokens."""
    if options.shape:
        return synthetic_prompts(model, options.count)
    return real_prompts(model, options.model, questions=options.questions, count=options.count)


if __name__ == "__main__":
    main()
