"""Extraction, side by side: this engine on both of its paths, plain batching, and one example at a time.

(a) engine  packed trees on a shared prefix, as the extract stage runs them, vectors copied to the host
    path    the engine's plain path, which the extract stage takes for models that cannot be packed
(b) plain   padded batches of whole sequences, clean and knocked out, only the kept vectors copied to the host
(c) single  one sequence at a time, every hidden state copied to the host, as research code does it

All use the same weights, dtype, examples and passes. Random weights of the published shapes are
drawn on the device; `--model` takes a folder with real ones.
"""

import argparse
import copy
import gc
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

import torch
from common import (
    ROOT,
    TWO_PASSES,
    arguments,
    fast_dtype,
    machine,
    matmul_rate,
    operations_per_token,
    report,
    seconds,
    synthetic_workload,
)
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from anchorscope.engine.door import Engine
from anchorscope.engine.packs import Packs
from anchorscope.engine.self_check import EnginePath
from anchorscope.engine.work import Variant
from anchorscope.extract.axes import COMPONENTS, EXACT, FULL_GRID, HEADLINE, PASSES, Grid
from anchorscope.extract.job import run_workload, to_host
from anchorscope.extract.sequences import Workload
from anchorscope.extract.store import ActivationWriter, example_bytes
from anchorscope.models.loading import random_model

SHAPES = ["llama-3.2-1b", "llama-3.2-3b", "qwen3-8b", "qwen3-32b"]


class Nowhere:
    """A writer that drops what has arrived on the host."""

    knockout = EXACT

    def __init__(self, grid: Grid = FULL_GRID):
        self.grid = grid

    def add(self, keys: list[dict], block: Tensor) -> None:
        pass


def load(shape: str, dtype: torch.dtype, device: torch.device) -> PreTrainedModel:
    file = ROOT / "workflow" / "resources" / "shapes" / f"{shape}.json"
    return random_model(file, seed=0, dtype=dtype, device=device)


def writer_to(folder: Path, model: PreTrainedModel, grid: Grid) -> ActivationWriter:
    shape = {"layers": model.config.num_hidden_layers, "width": model.config.hidden_size}
    return ActivationWriter(folder, **shape, dtype=model.dtype, made_from={}, grid=grid)


def run_engine(model: PreTrainedModel, workload: Workload, batch_tokens: int, path: EnginePath) -> None:
    """(a), without the trial that finds the path, which a job makes once and which is timed apart."""
    run_workload(Engine(model, batch_tokens), workload, Nowhere(), path=path)


def compare_with_memory(
    model: PreTrainedModel, name: str, grid: Grid, gigabytes: float, options: argparse.Namespace
) -> dict:
    """The workflow's five passes, to disk as the extract stage writes them (checked and sealed), and without a disk."""
    config = model.config
    each = example_bytes(
        layers=config.num_hidden_layers, width=config.hidden_size, dtype=model.dtype, passes=len(PASSES), grid=grid
    )
    count = max(64, int(gigabytes * 1e9 / each))
    workload = synthetic_workload(
        count, prefix=options.prefix, suffix=options.suffix, passes=PASSES, positions=len(grid.positions)
    )

    def to_disk(folder: Path, work: Workload) -> None:
        with writer_to(folder, model, grid) as writer:
            run_workload(Engine(model, options.batch_tokens), work, writer)

    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        to_disk(Path(temporary) / "warm", replace(workload, keys=workload.keys[:64], sequences=workload.sequences[:64]))
        stored = seconds(lambda: to_disk(Path(temporary) / "a", workload))
    memory = seconds(lambda: run_workload(Engine(model, options.batch_tokens), workload, Nowhere(grid)))
    return {
        f"{name} to disk ex/s": count / stored,
        f"{name} in memory ex/s": count / memory,
        f"{name} disk / memory": memory / stored,
        f"{name} GB/s": count * each / 1e9 / stored,
    }


def dd_rate(gigabytes: float, folder: str | None) -> float:
    """Gigabytes per second that `dd` writes there, until they are on the disk."""
    blocks = max(1, int(gigabytes * 1e9 / 2**26))
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        command = ["dd", "if=/dev/zero", f"of={temporary}/dd", "bs=64M", f"count={blocks}", "conv=fsync"]
        return blocks * 2**26 / 1e9 / seconds(lambda: subprocess.run(command, check=True, capture_output=True))


def compare_with_disk(model: PreTrainedModel, options: argparse.Namespace) -> dict:
    """The headline's activations against memory, and the whole grid's bytes against `dd`'s."""
    found: dict[str, float] = {}
    for name, grid, gigabytes in (("headline", HEADLINE, options.stored / 4), ("grid", FULL_GRID, options.stored)):
        found |= compare_with_memory(model, name=name, grid=grid, gigabytes=gigabytes, options=options)
    rate = dd_rate(options.stored, options.folder)
    return found | {"dd GB/s": rate, "grid / dd": found["grid GB/s"] / rate}


def whole_mask(sequences: list[Variant], longest: int, device: torch.device) -> Tensor:
    """The method's definition of the knockout for padded whole sequences, boolean [sequences, 1, queries, keys]."""
    cut = torch.zeros(len(sequences), longest, dtype=torch.bool)
    for index, sequence in enumerate(sequences):
        cut[index, sequence.cut] = True
    cut = cut.to(device)
    causal = torch.ones(longest, longest, dtype=torch.bool, device=device).tril()
    return (causal & ~(cut[:, None, :] & ~cut[:, :, None]))[:, None]


@torch.inference_mode()
def run_plain(model: PreTrainedModel, sequences: list[list[Variant]], batch_tokens: int) -> Tensor:
    """(b): [layers x components, sequences, positions, width] of the last batch, on the host.

    Copied to pinned memory beside the next batch's computation, as (a) does it.
    """
    flat = sorted((sequence for item in sequences for sequence in item), key=lambda sequence: -len(sequence.ids))
    size = max(1, batch_tokens // len(flat[0].ids))
    kept: list[Tensor] = []
    places = None

    def hook(module, inputs, output):
        states = output[0] if isinstance(output, tuple) else output
        kept.append(states[torch.arange(len(states), device=states.device)[:, None], places])

    layers = model.get_decoder().layers
    handles = [part.register_forward_hook(hook) for layer in layers for part in (layer, layer.self_attn, layer.mlp)]
    arrive = None
    for start in range(0, len(flat), size):
        batch = flat[start : start + size]
        longest = len(batch[0].ids)
        ids = torch.tensor(
            [sequence.ids.tolist() + [0] * (longest - len(sequence.ids)) for sequence in batch], device=model.device
        )
        places = torch.tensor([sequence.read for sequence in batch], device=model.device)
        mask = whole_mask(batch, longest, model.device)
        # Models with several kinds of layers take a mask for each.
        kinds = getattr(model.config, "layer_types", None)
        model.get_decoder()(
            input_ids=ids, attention_mask=dict.fromkeys(kinds, mask) if kinds else mask, use_cache=False
        )
        on_the_way = to_host([torch.stack(kept)[:, None]])
        kept.clear()
        if arrive:
            arrive()
        arrive = on_the_way
    for handle in handles:
        handle.remove()
    return arrive()[0].squeeze(1)


@torch.inference_mode()
def run_single(model: PreTrainedModel, sequences: list[list[Variant]]) -> None:
    """(c): one sequence at a time."""
    kinds = getattr(model.config, "layer_types", None)
    for item in sequences:
        for sequence in item:
            mask = whole_mask([sequence], len(sequence.ids), model.device)
            output = model(
                input_ids=torch.tensor(sequence.ids[None], device=model.device),
                attention_mask=dict.fromkeys(kinds, mask) if kinds else mask,
                output_hidden_states=True,
                use_cache=False,
            )
            for states in output.hidden_states:
                states.cpu()


@torch.inference_mode()
def accuracy(model: PreTrainedModel, options: argparse.Namespace) -> dict:
    """How far the engine and plain batching are from each other, and each from float32 where that fits."""
    workload = synthetic_workload(4, prefix=options.prefix, suffix=options.suffix, passes=TWO_PASSES)

    def plain(some: PreTrainedModel) -> Tensor:  # [examples, passes, layers x components, positions, width]
        found = torch.stack(
            [torch.stack([run_plain(some, [[sequence]], 1)[:, 0] for sequence in item]) for item in workload.sequences]
        )
        attention_mlp_block = found.float().unflatten(2, (-1, len(COMPONENTS)))  # in the order in which they end
        return attention_mlp_block[:, :, :, [2, 0, 1]].flatten(2, 3)

    def ours(path: EnginePath) -> Tensor:  # as above
        found: dict[int, Tensor] = {}

        def take(batch: list[int], blocks: list[Tensor]) -> None:
            block = blocks[0].float().cpu().unflatten(2, (len(TWO_PASSES), -1, len(batch)))
            found.update(zip(batch, block.permute(4, 2, 1, 0, 3, 5).flatten(2, 3), strict=True))

        Engine(model).states(work, take, path=path)
        return torch.stack([found[index] for index in sorted(found)])

    work = workload.work(FULL_GRID, model.config.num_hidden_layers, EXACT)
    path = Engine(model).prepare(work)
    fast, slow = ours(path), plain(model)
    errors = {"engine - plain": _distance(fast, slow), "path - plain": _distance(ours(path.plain()), slow)}
    if model.dtype != torch.float32 and model.num_parameters() < 10e9:
        exact = plain(copy.deepcopy(model).float())
        errors |= {"engine error": _distance(fast, exact), "plain error": _distance(slow, exact)}
    return errors


def _distance(some: Tensor, other: Tensor) -> float:
    return ((some - other).norm() / other.norm()).item()


def compare_paths(
    model: PreTrainedModel, path: EnginePath, workload: Workload, budget: int, slow: float
) -> dict[str, float]:
    """The engine's plain path on the examples of (b), which takes `slow` seconds for each."""
    run_engine(model, workload, budget, path.plain())  # warm
    own = seconds(lambda: run_engine(model, workload, budget, path.plain())) / len(workload.sequences)
    return {"path ex/s": 1 / own, "path / plain": slow / own}


def compare(shape: str, model: PreTrainedModel, rate: float, options: argparse.Namespace) -> dict:
    cuda = model.device.type == "cuda"
    budget = Engine(model, options.batch_tokens).batch_tokens
    weights = torch.cuda.memory_allocated() if cuda else 0

    def examples(count: int) -> Workload:
        return synthetic_workload(count, prefix=options.prefix, suffix=options.suffix, passes=TWO_PASSES)

    workload = examples(options.examples)
    count = len(workload.sequences)
    work = workload.work(FULL_GRID, model.config.num_hidden_layers, EXACT)
    path = Engine(model).prepare(work)
    with torch.inference_mode(), path.running(model):
        packs = Packs(model, work.items, model.config.num_hidden_layers)
        tokens = sum(packs.sizes())
    trial = seconds(lambda: Engine(model).prepare(work))
    run_engine(model, workload, budget, path)  # warm
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    fast = seconds(lambda: run_engine(model, workload, budget, path)) / count
    peak = (torch.cuda.max_memory_allocated() - weights) / 2**30 if cuda else None
    result = {
        "model": Path(shape).name,
        "engine ex/s": 1 / fast,
        "engine tok/s": tokens / count / fast,
        "tok/ex": tokens / count,
        "matmul share": tokens / count / fast * operations_per_token(model) / rate,
        "peak GiB": peak,
        "trial s": trial,
    }
    for name, work, fewer in (
        ("plain", lambda some: run_plain(model, some, budget), options.plain),
        ("single", lambda some: run_single(model, some), options.single),
    ):
        if fewer:
            some = examples(fewer).sequences
            work(some)  # warm
            slow = seconds(lambda: work(some)) / fewer  # noqa: B023
            result |= {f"{name} ex/s": 1 / slow, f"engine / {name}": slow / fast}
            if name == "plain":
                result |= compare_paths(model, path, examples(fewer), budget=budget, slow=slow)
    if options.stored:
        result |= compare_with_disk(model, options)
    return result | accuracy(model, options)


if __name__ == "__main__":
    options = arguments(
        shapes={"nargs": "+", "default": SHAPES, "help": "published shapes, with random weights"},
        model={"help": "a folder with a real model, instead of shapes"},
        examples={"type": int, "default": 4096},
        plain={"type": int, "default": 512, "help": "examples of (b)"},
        single={"type": int, "default": 16, "help": "examples of (c)"},
        stored={"type": float, "default": 0, "help": "gigabytes of activations to write to disk, with all passes"},
        folder={"help": "where to write them; by default the folder for temporary files"},
        prefix={"type": int, "default": 80},
        suffix={"type": int, "default": 24},
        batch_tokens={"type": int},
        dtype={"default": "auto"},
        threads={"type": int, "default": torch.get_num_threads()},
    )
    torch.set_num_threads(options.threads)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = fast_dtype(options.dtype, device)
    rate = matmul_rate(device, dtype)
    results = []
    for shape in [options.model] if options.model else options.shapes:
        if options.model:
            model = AutoModelForCausalLM.from_pretrained(shape, dtype=dtype).to(device).eval().requires_grad_(False)
        else:
            model = load(shape, dtype, device)
        results.append(compare(shape, model=model, rate=rate, options=options))
        print(results[-1], flush=True)
        del model
        gc.collect()
        torch.cuda.empty_cache()
    report(results, {"matmul TFLOP/s": rate / 1e12, "dtype": str(dtype), **machine()}, options.record)
