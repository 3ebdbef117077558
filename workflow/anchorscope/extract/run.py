"""Clean and knocked-out activations of every layer: one forward pass per prompt runs all passes of an example.

The state at layer l depends only on layers 0 ... l. So one pass with the knockout in every layer gives the right state
for every l.
"""

import hashlib
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from torch import Tensor

from anchorscope.engine.door import Engine, Path
from anchorscope.extract.axes import WITHIN, Balance
from anchorscope.extract.sequences import Workload
from anchorscope.extract.store import ActivationWriter
from anchorscope.extract.writer import writing
from anchorscope.files.logs import log


def balanced(ids: list[str], right: list[bool], within: Sequence[str | None], seed: int) -> list[int]:
    """Which examples to keep: all of the smaller class and an equal, seeded draw of the larger one.

    Classes are balanced among the examples that have the same value in `within`. Their order does not depend on the
    classes, so which examples share a batch does not either.
    """
    drawn = sorted(range(len(ids)), key=lambda index: hashlib.sha256(f"{seed}\n{ids[index]}".encode()).digest())
    parts: dict[str | None, tuple[list[int], list[int]]] = {}
    for index in drawn:
        parts.setdefault(within[index], ([], []))[right[index]].append(index)
    kept = {index for wrong, fine in parts.values() for pair in zip(wrong, fine, strict=False) for index in pair}
    return [index for index in drawn if index in kept]


def analysed(answers: pa.Table, balance: Balance, seed: int) -> pa.Table:
    """The answers that are analysed: no refusals, and with `balance` as many right as wrong ones.

    With `balance` "property", there are as many among the questions about each property; with "form", among those of
    each form.
    """
    usable = answers.filter(~pc.field("refused"))
    ids, right = (usable[name].to_pylist() for name in ("id", "right"))
    within = usable[WITHIN[balance]].to_pylist() if isinstance(balance, str) else [None] * len(ids)
    if balance == "property" and not any(within):
        log.info("no question names the property that it asks about, so right and wrong are balanced over all of them")
    # Arrow cannot know that an empty list would hold numbers.
    examples = usable.take(pa.array(balanced(ids, right, within, seed=seed), pa.int64())) if balance else usable
    log.info(
        "%d answers can be analysed, %d are left out to balance right and wrong",
        len(usable),
        len(usable) - len(examples),
    )
    return examples


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
