"""Clean and knocked-out activations of every layer: one forward pass per prompt runs all passes of an example.

The state at layer l depends only on layers 0 ... l. So one pass with the knockout in every layer gives the right state
for every l. Blocks go from the device to the files while the next batch is computed.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from queue import Queue

import torch
from torch import Tensor

from anchorscope.engine.door import Engine, Path
from anchorscope.extract.sequences import Workload
from anchorscope.extract.store import ActivationWriter, check_finite

WAITING = 2  # batches on their way to the file; more would only hold memory


@contextmanager
def writing(writer: ActivationWriter) -> Iterator[Callable[[list[dict], list[Tensor]], None]]:
    """Yield a function that hands blocks on the device to `writer`, which a second thread feeds.

    What that thread raises is raised here.
    """
    waiting: Queue = Queue(WAITING)
    failed: list[BaseException] = []

    def work() -> None:
        while (item := waiting.get()) is not None:
            keys, arrive = item
            try:
                if not failed:
                    block, suspect = arrive()
                    if suspect:
                        check_finite(keys, block, writer.grid, writer.passes)
                    writer.add(keys, block)
            except BaseException as error:
                failed.append(error)

    def write(keys: list[dict], blocks: list[Tensor]) -> None:
        if failed:
            raise failed[0]
        waiting.put((keys, to_host(blocks)))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield write
    finally:
        waiting.put(None)
        thread.join()
    if failed:
        raise failed[0]


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
    path: Path | None = None,
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
