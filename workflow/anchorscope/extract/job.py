"""The extract stage from files to files: clean and knocked-out activations of every layer.

One forward pass per prompt runs all passes of an example. The state at layer l depends only on layers 0 ... l. So one
pass with the knockout in every layer gives the right state for every l. Blocks go from the device to the files while
the next batch is computed. Needs torch, transformers, numpy and pyarrow, and no workflow engine.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pyarrow as pa
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from anchorscope.answer.donors import DONORS
from anchorscope.answer.prompts import ModelSettings
from anchorscope.engine.door import Engine, EnginePath
from anchorscope.extract.axes import Grid, passes_of
from anchorscope.extract.sequences import USED, Workload, build_replaced, build_workload, tell_uncut
from anchorscope.extract.store import KEYS, ActivationWriter, check_states_finite
from anchorscope.files.sealed_parquet import provenance, read_table
from anchorscope.models.loading import leave_gpus, load_fetched_tokenizer
from anchorscope.models.manifest import Manifest

EXTRACTION_NEEDS = [
    *KEYS.names,
    *("question", "spans"),
    *("generated_ids", "exact_first", "exact_last", "answer_final"),
    *DONORS.names,
]
WAITING = 2  # batches on their way to the file; more would only hold memory


@dataclass(frozen=True)
class ExtractSettings(ModelSettings):
    """What is extracted from the chosen examples of a shard, and how."""

    grid: Grid  # what is kept of every example
    knockout: str  # which is run, with its control; or an experiment that replaces tokens


def extract_file(
    chosen: Path | str,
    manifest: Path | str,
    folder: Path | str,
    settings: ExtractSettings,
    answers: Path | str | None = None,
) -> None:
    """Write the activations of a file of chosen examples to a folder; its files are whole or absent.

    An experiment that replaces tokens takes them from any question of the shard, so it needs all `answers`.
    Everything that needs no GPU is done before one is taken.
    """
    examples = read_table(chosen, EXTRACTION_NEEDS)
    asked = None if answers is None else read_table(answers, USED)
    described = Manifest.read(manifest)
    tokenizer = load_fetched_tokenizer(described)
    workload = _workload(tokenizer, examples, asked, settings)
    engine = settings.engine(described)
    write_activations(
        engine,
        workload,
        folder,
        grid=settings.grid,
        knockout=settings.knockout,
        made=settings.made("extract", described, engine),
        computed=lambda: leave_gpus(engine.model),
    )


def _workload(
    tokenizer: PreTrainedTokenizerBase, examples: pa.Table, asked: pa.Table | None, settings: ExtractSettings
) -> Workload:
    """What is run for the settings' knockout or experiment."""
    prompts, knockout, positions = settings.prompts.built(tokenizer), settings.knockout, settings.grid.positions
    if asked is not None:
        return build_replaced(
            tokenizer, prompts["first"], examples, asked=asked, experiment=knockout, positions=positions
        )
    workload = build_workload(tokenizer, prompts, examples, passes=passes_of(knockout), positions=positions)
    tell_uncut(workload, knockout)
    return workload


def write_activations(
    engine: Engine,
    workload: Workload,
    folder: Path | str,
    *,
    grid: Grid,
    knockout: str,
    made: Mapping[str, object],
    computed: Callable[[], None] = lambda: None,
) -> None:
    """Write the activations of a knockout or an experiment; `made` says what they are made from.

    `computed` is called when the model is no longer needed.
    """
    path = engine.prepare(workload.work(grid, engine.layers, knockout))
    writer = ActivationWriter(
        folder,
        layers=engine.layers,
        width=engine.width,
        dtype=engine.model.dtype,
        made_from=provenance(**made, path=path and path.as_json()),
        grid=grid,
        knockout=knockout,
    )
    with writer:
        run_workload(engine, workload, writer, path=path, computed=computed)


@contextmanager
def writing(writer: ActivationWriter) -> Iterator[Callable[[list[dict], list[Tensor]], None]]:
    """Yield a function that hands blocks on the device to `writer`, which a second thread feeds.

    What that thread raises is raised here.
    """
    written: list[Future] = []

    def put(keys: list[dict], arrive: Callable[[], tuple[Tensor, bool]]) -> None:
        block, suspect = arrive()
        if suspect:
            check_states_finite(keys, block, writer.grid, writer.passes)
        writer.add(keys, block)

    def write(keys: list[dict], blocks: list[Tensor]) -> None:
        arrive = to_host(blocks)
        if len(written) > WAITING:
            written[-1 - WAITING].result()
        written.append(thread.submit(put, keys, arrive))

    with ThreadPoolExecutor(1) as thread:
        yield write
        for one in written:
            one.result()


@cache
def _copy_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


def to_host(blocks: list[Tensor]) -> Callable[[], tuple[Tensor, bool]]:
    """Begin to copy blocks of consecutive layers into one block in pinned memory.

    The function that is returned waits for the copy, and says whether a number in it may not be finite. The copy runs
    on its own stream, so that the next batch need not wait.
    """
    # A sum is not finite if one of its terms is not. Whether it merely grew too large is checked on the host.
    sums = [block.sum(dtype=torch.float32) for block in blocks]
    if blocks[0].device.type == "cpu":
        return lambda: (blocks[0], not bool(sums[0].isfinite()))
    layers = [block.shape[1] for block in blocks]
    shape = list(blocks[0].shape)
    shape[1] = sum(layers)
    host = torch.empty(shape, dtype=blocks[0].dtype, pin_memory=True)
    totals = torch.empty(len(blocks), pin_memory=True)
    arrivals = []
    for block, target, term, total in zip(blocks, host.split(layers, dim=1), sums, totals, strict=True):
        stream = _copy_stream(block.device)
        stream.wait_stream(torch.cuda.current_stream(block.device))
        with torch.cuda.stream(stream):
            target.copy_(block, non_blocking=True)
            total.copy_(term, non_blocking=True)
        block.record_stream(stream)
        term.record_stream(stream)
        arrivals.append(stream.record_event())

    def arrive() -> tuple[Tensor, bool]:
        for event in arrivals:
            event.synchronize()
        return host, not bool(totals.isfinite().all())

    return arrive


def run_workload(
    engine: Engine,
    workload: Workload,
    writer: ActivationWriter,
    *,
    path: EnginePath | None = None,
    computed: Callable[[], None] = lambda: None,
) -> None:
    """Run every pass of every example and stream the kept vectors to `writer`.

    `path` says how, if the engine was prepared. `computed` is called when the model is no longer needed, while the last
    batches are still being written.
    """
    shape = (len(workload.passes), len(writer.grid.positions))
    with writing(writer) as write:

        def take(batch: list[int], blocks: list[Tensor]) -> None:
            keys = [workload.keys[index] for index in batch]
            write(keys, [block.unflatten(2, (*shape, len(batch))) for block in blocks])

        work = workload.work(writer.grid, engine.layers, writer.knockout)
        engine.states(work, take, what="extracting activations", path=path)
        computed()
