"""Extraction, side by side: Anchorscope, nnsight, nnterp, TransformerLens, and transformers with hooks.

Each gives the output of every block at three tokens of every example, clean and with the exact question tokens cut.
All have the same weights, dtype, threads and examples: the model's own answers to bundled questions (random tokens
where `--shape` names random weights).

A library runs padded batches under a mask that is the method's definition of the knockout, sorted by length, and
computes what all sequences begin with once. It takes the batch size at which it was fastest in a warm-up. *One at a
time* is the same library with whole sequences, one by one. Anchorscope's time includes the trial that a job makes.
All ways are timed in turn; the median of several rounds counts. The *largest difference* is that from Anchorscope's
states, relative to their root mean square in the same layer.

A library that is not installed, or not with the others, is left out in one sentence.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.utils import logging

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench_extract import whole_mask
from common import arguments, fast_dtype, machine, repeated, report, seconds
from libraries import LIBRARIES, Batch, Library, named
from subjects import examples, load_model, load_tokenizer

from anchorscope.engine.door import Engine
from anchorscope.engine.work import Variant, shared_tokens
from anchorscope.extract.axes import EXACT, POSITIONS, Grid
from anchorscope.extract.job import run_workload
from anchorscope.extract.sequences import Workload

OURS = "anchorscope"


@dataclass
class Keeper:
    """A writer that keeps what has arrived on the host, by the number of the example."""

    grid = Grid(("resid",), POSITIONS)
    knockout = EXACT
    found: dict[str, Tensor] = field(default_factory=dict)  # [passes, layers, positions, width]

    def add(self, keys: list[dict], block: Tensor) -> None:
        each = block[0].permute(3, 1, 0, 2, 4)  # [examples, passes, layers, positions, width]
        self.found |= {key["id"]: states for key, states in zip(keys, each.clone(), strict=True)}


def run_ours(model: PreTrainedModel, workload: Workload) -> Tensor:
    """[layers, sequences, positions, width], the passes of an example side by side."""
    keeper = Keeper()
    run_workload(Engine(model), workload, keeper)
    states = torch.stack([keeper.found[key["id"]] for key in workload.keys])
    return states.flatten(0, 1).transpose(0, 1)


def beginning(sequences: list[Variant]) -> int:
    """How many tokens all sequences begin with, before any that is cut or read."""
    shared = shared_tokens([sequence.ids.tolist() for sequence in sequences])
    return min(shared, *(place for sequence in sequences for place in [*sequence.cut, *sequence.read]))


def batch_of(sequences: list[Variant], start: int, device: torch.device) -> Batch:
    """Padded on the right, without the first `start` tokens; the longest comes first."""
    longest = len(sequences[0].ids)
    ids = [sequence.ids[start:].tolist() + [0] * (longest - len(sequence.ids)) for sequence in sequences]
    return Batch(
        ids=torch.tensor(ids, device=device),
        mask=whole_mask(sequences, longest, device)[:, :, start:],
        places=torch.tensor([sequence.read for sequence in sequences], device=device) - start,
    )


@torch.inference_mode()
def run_library(library: Library, sequences: list[Variant], start: int, rows: int, device: torch.device) -> Tensor:
    """[layers, sequences, positions, width], with the first `start` tokens computed once."""
    order = sorted(range(len(sequences)), key=lambda index: -len(sequences[index].ids))
    cache = library.prefix(torch.tensor(sequences[0].ids[None, :start], device=device).long()) if start else None
    found = []
    for first in range(0, len(order), rows):
        some = [sequences[index] for index in order[first : first + rows]]
        found.append(library.states(batch_of(some, start, device), repeated(cache, len(some))).cpu())
    return torch.cat(found, dim=1)[:, torch.tensor(order).argsort()]


def largest_difference(states: Tensor, ours: Tensor) -> float:
    scale = ours.float().square().mean((1, 2, 3)).sqrt()  # [layers]
    return ((states.float() - ours.float()).abs().amax((1, 2, 3)) / scale).max().item()


@dataclass
class Way:
    """One way of extracting, and what was measured of it."""

    name: str
    work: Callable[[], Tensor]
    rows: int | None = None  # sequences in a batch
    alone: Callable[[], Tensor] | None = None  # one example at a time
    times: list[float] = field(default_factory=list)
    busy: float = 0  # seconds of all cores

    def measure(self) -> Tensor:
        before, found = time.process_time(), []
        self.times.append(seconds(lambda: found.append(self.work())))
        self.busy += time.process_time() - before
        return found[0]


def way_of(name: str, workload: Workload, options: argparse.Namespace) -> Way:
    """A library with its own copy of the model, at the batch size that is its fastest."""
    device = torch.device(options.device)
    model = load_model(options.model, options.shape, getattr(torch, options.dtype), device)
    library = LIBRARIES[name](model, load_tokenizer(options.model))
    sequences = [sequence for item in workload.sequences for sequence in item]
    start, few = beginning(sequences), sequences[: 2 * max(options.rows)]
    took = {}
    for rows in options.rows:
        run_library(library, few[: 2 * rows], start=start, rows=rows, device=device)
        took[rows] = seconds(lambda: run_library(library, few, start=start, rows=rows, device=device))  # noqa: B023
    rows = min(took, key=lambda size: took[size])
    return Way(
        named(name),
        lambda: run_library(library, sequences, start=start, rows=rows, device=device),
        rows=rows,
        alone=lambda: run_library(library, sequences[: 2 * options.single], start=0, rows=1, device=device),
    )


def ways(workload: Workload, model: PreTrainedModel, options: argparse.Namespace) -> tuple[list[Way], list[str]]:
    """Everything that can be measured here, and why the rest cannot."""
    run_ours(model, workload)  # to warm up
    found, left_out = [Way(OURS, lambda: run_ours(model, workload))], []
    for name in options.libraries:
        try:
            found.append(way_of(name, workload, options))
        except ImportError as error:
            left_out.append(f"{name}: {str(error).partition(' (')[0]}")  # without the place of the file
    return found, left_out


def measure(found: list[Way], count: int, options: argparse.Namespace) -> list[dict]:
    """A row for each way."""
    states: dict[str, Tensor] = {}
    for _ in range(options.repeats):  # in turn, so that all meet the machine in the same state
        for way in found:
            states[way.name] = way.measure()
    rows, ours = [], found[0]
    for way in found:
        took = statistics.median(way.times)
        row = {
            "way": way.name,
            "rows a batch": way.rows,
            "examples/s": count / took,
            "anchorscope / way": took / statistics.median(ours.times),
            "slowest / fastest": max(way.times) / min(way.times),
            "cores": way.busy / sum(way.times),  # fewer where other work took them
        }
        if way.alone:
            row["largest difference"] = largest_difference(states[way.name], states[ours.name])
            row["one at a time ex/s"] = options.single / seconds(way.alone)
        rows.append(row)
    return rows


def main() -> None:
    cuda = torch.cuda.is_available()
    options = arguments(
        model={"help": "a folder with weights and tokenizer; this or --shape"},
        shape={"help": "a published shape with random weights, such as llama-3.2-1b"},
        libraries={"nargs": "*", "default": list(LIBRARIES)},
        examples={"type": int, "default": 2048 if cuda else 96, "help": "questions; those without an answer drop out"},
        rows={"nargs": "+", "type": int, "default": [128, 512] if cuda else [16, 48], "help": "sequences in a batch"},
        single={"type": int, "default": 4, "help": "examples that are also run one at a time"},
        repeats={"type": int, "default": 3, "help": "rounds; the median counts"},
        dtype={"default": "float32"},
        device={"default": "cuda" if cuda else "cpu"},
        threads={"type": int, "default": torch.get_num_threads()},
    )
    if bool(options.model) == bool(options.shape):
        raise SystemExit("Give either --model or --shape.")
    torch.set_num_threads(options.threads)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    device = torch.device(options.device)
    options.dtype = str(fast_dtype(options.dtype, device)).removeprefix("torch.")
    model = load_model(options.model, options.shape, getattr(torch, options.dtype), device)
    workload = examples(model, load_tokenizer(options.model), options.examples)
    found, left_out = ways(workload, model, options)
    count = len(workload.keys)
    rows = measure(found, count, options)
    sequences = [sequence for item in workload.sequences for sequence in item]
    work = workload.work(Keeper.grid, model.config.num_hidden_layers, EXACT)
    about = {
        "examples": count,
        "trial s": seconds(lambda: Engine(model).prepare(work)),
        "tokens a sequence": sum(len(sequence.ids) for sequence in sequences) / len(sequences),
        "of which shared": beginning(sequences),
        "dtype": options.dtype,
        "left out": left_out,
    }
    report(rows, about | machine(), options.record)


if __name__ == "__main__":
    main()
