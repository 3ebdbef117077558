"""What `anchorscope.needs` predicts for a model's shape, and what was measured: memory, file size and time.

Weights are random. All five passes of synthetic examples go into a Parquet file as the extract stage writes it. Answers
have the full number of tokens, the most that the answer stage can have to do.
"""

import argparse
import gc
import resource
import tempfile
from dataclasses import replace
from pathlib import Path

import torch
from bench_extract import SHAPES, load, writer_to
from bench_generate import synthetic_prompts
from common import ROOT, arguments, machine, report, seconds, synthetic_workload
from transformers import AutoConfig, PreTrainedModel

from anchorscope.engine.door import Engine
from anchorscope.engine.work import Prompts
from anchorscope.extract.axes import HEADLINE, PASSES
from anchorscope.extract.job import run_workload
from anchorscope.extract.sequences import Workload
from anchorscope.extract.store import file_of
from anchorscope.models.loading import NEW_TOKENS
from anchorscope.needs import Needs, needs


def extract_to(folder: Path, model: PreTrainedModel, workload: Workload) -> None:
    with writer_to(folder, model, HEADLINE) as writer:
        run_workload(Engine(model), workload, writer)


def measure(shape: str, model: PreTrainedModel, expected: Needs, options: argparse.Namespace) -> dict:
    weights = torch.cuda.memory_allocated()
    workload = synthetic_workload(
        options.examples, prefix=80, suffix=24, passes=PASSES, positions=len(HEADLINE.positions)
    )
    prompts, _, stops = synthetic_prompts(model, options.questions)
    stops[:] = False
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "a"
        extract_to(
            folder, model, replace(workload, keys=workload.keys[:512], sequences=workload.sequences[:512])
        )  # warm
        torch.cuda.reset_peak_memory_stats()
        extracting = seconds(lambda: extract_to(folder, model, workload)) / options.examples
        file = file_of(folder, *HEADLINE.places()[0]).stat().st_size / options.examples

    def answer(some: list[list[int]]) -> None:
        Engine(model).continued(Prompts(some, stops, NEW_TOKENS), what="answering")

    answer(prompts[:64])  # warm
    answering = seconds(lambda: answer(prompts)) / len(prompts)
    found = {
        "weights GB": (weights / 1e9, expected.weight_bytes / 1e9),
        "GPU GB": (torch.cuda.max_memory_allocated() / 1e9, expected.gpu_bytes / 1e9),
        "host GB": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, expected.host_bytes / 1e9),
        "file MB/ex": (file / 1e6, expected.example_bytes / 1e6),
        "extract ms/ex": (1e3 * extracting, 1e3 * expected.extract_seconds),
        "answer ms/q": (1e3 * answering, 1e3 * expected.answer_seconds),
    }
    pairs = {name: {"measured": some, "expected": other} for name, (some, other) in found.items()}
    print(shape, *(f"{name} {some:.4g}/{other:.4g}" for name, (some, other) in found.items()), flush=True)
    return {"model": shape, **{f"{name}, {kind}": pair[kind] for name, pair in pairs.items() for kind in pair}}


if __name__ == "__main__":
    options = arguments(
        shapes={"nargs": "+", "default": SHAPES, "help": "published shapes, with random weights, the smallest first"},
        examples={"type": int, "default": 1024},
        questions={"type": int, "default": 1024},
    )
    results = []
    for shape in options.shapes:
        expected = needs(AutoConfig.from_pretrained(ROOT / "workflow" / "resources" / "shapes" / f"{shape}.json"))
        model = load(shape, torch.bfloat16, torch.device("cuda"))
        results.append(measure(shape, model=model, expected=expected, options=options))
        del model
        gc.collect()
        torch.cuda.empty_cache()
    report(results, {"expected": "anchorscope.needs", **machine()}, options.record)
