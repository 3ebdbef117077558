"""Clean and knocked-out activations of every layer: one forward pass per prompt runs all passes of an example.

The state at layer l depends only on layers 0 ... l. So one pass with the knockout in every layer gives the right state
for every l.
"""

from collections.abc import Callable

from torch import Tensor

from anchorscope.engine.door import Engine, Path
from anchorscope.extract.sequences import Workload
from anchorscope.extract.store import ActivationWriter
from anchorscope.extract.writer import writing


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
