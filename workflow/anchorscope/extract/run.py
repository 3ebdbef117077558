"""Clean and knocked-out activations of every layer: one forward pass per prompt runs all passes of an example.

The state at layer l depends only on layers 0 ... l. So one pass with the knockout in every layer gives the right state
for every l.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor
from transformers import PreTrainedModel

from anchorscope.answer.prompts import check_length
from anchorscope.engine.attention import compute_prefix, packed_attention, run_decoder
from anchorscope.engine.batches import default_tokens, run_batches
from anchorscope.engine.packing import Pack, to_device
from anchorscope.engine.self_check import check_packed
from anchorscope.extract.axes import Grid, window_of
from anchorscope.extract.recorder import Recorder, Watch, recording
from anchorscope.extract.sequences import TokenSequence, Workload, grow_tree
from anchorscope.extract.store import ActivationWriter, example_bytes
from anchorscope.extract.writer import writing
from anchorscope.files.logs import log

Balance = bool | Literal["property"]  # over all examples or not; or within each property asked about
# What is kept of a batch of examples of mean length. At most four batches are on their way from the device to the file,
# and memory for them comes in powers of two: so even batches of the shortest examples fit into a gigabyte each.
KEPT_BYTES = 5 * 2**27


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

    With `balance` "property", there are as many among the questions about each property.
    """
    usable = answers.filter(~pc.field("refused"))
    ids, right, properties = (usable[name].to_pylist() for name in ("id", "right", "property"))
    if balance == "property" and not any(properties):
        log.info("no question names the property that it asks about, so right and wrong are balanced over all of them")
    within = properties if balance == "property" else [None] * len(ids)
    # Arrow cannot know that an empty list would hold numbers.
    examples = usable.take(pa.array(balanced(ids, right, within, seed=seed), pa.int64())) if balance else usable
    log.info(
        "%d answers can be analysed, %d are left out to balance right and wrong",
        len(usable),
        len(usable) - len(examples),
    )
    return examples


def run_workload(
    model: PreTrainedModel,
    workload: Workload,
    writer: ActivationWriter,
    *,
    batch_tokens: int | None,
    computed: Callable[[], None] = lambda: None,
) -> None:
    """Run every pass of every example and stream the kept vectors to `writer`.

    `computed` is called when the model is no longer needed, while the last batches are still being written.
    """
    with writing(writer) as write:
        if workload.sequences:
            window = window_of(writer.knockout)
            _run_batches(model, workload, writer.grid, write=write, batch_tokens=batch_tokens, window=window)
        computed()


@torch.inference_mode()
def _run_batches(
    model: PreTrainedModel,
    workload: Workload,
    grid: Grid,
    *,
    write: Callable[[list[dict], list[Tensor]], None],
    batch_tokens: int | None,
    window: int | None,
) -> None:
    sequences, keys, (first_prompt, _) = workload.sequences, workload.keys, workload.passes[0]
    check_length(max(len(sequence.ids) for item in sequences for sequence in item), model.config)
    check_packed(model, sequences[0][0].ids.tolist(), workload.shared[first_prompt])
    with packed_attention(model), recording(model, grid.components) as recorder:
        engine = Engine(model, recorder, workload, window=window)

        def run(batch: list[int]) -> None:
            blocks = engine.run([sequences[index] for index in batch])
            write([keys[index] for index in batch], blocks)

        sizes = [max(engine.tokens(item).values()) for item in sequences]
        budget = batch_tokens or _budget(model, sizes, passes=len(workload.passes), grid=grid)
        run_batches(run, sizes, budget, what="extracting activations")


def _budget(model: PreTrainedModel, sizes: list[int], passes: int, grid: Grid) -> int:
    """Tokens per batch: fewer where the vectors kept of so many examples would fill the memory."""
    config = model.config.get_text_config()
    kept = example_bytes(
        layers=config.num_hidden_layers, width=config.hidden_size, dtype=model.dtype, passes=passes, grid=grid
    )
    mean = sum(sizes) / len(sizes)
    return min(default_tokens(model), max(1, int(KEPT_BYTES / kept * mean)))


class Engine:
    """A model with its shared prefixes computed, ready to run batches of examples."""

    def __init__(
        self,
        model: PreTrainedModel,
        recorder: Recorder,
        workload: Workload,
        window: int | None = None,
    ):
        self.model = model
        self.recorder = recorder
        self.width = model.config.get_text_config().hidden_size
        self.copies = None if window is None else min(window, len(self.recorder.layers))
        # The passes of a prompt follow one another, so that one forward pass fills one stretch of the block.
        self.parts = {
            name: [number for number, (prompt, _) in enumerate(workload.passes) if prompt == name]
            for name in workload.shared
        }
        first = workload.sequences[0]
        self.prefixes = {
            name: compute_prefix(model, first[numbers[0]].ids[: workload.shared[name]])
            for name, numbers in self.parts.items()
        }

    def tokens(self, item: list[TokenSequence]) -> dict[str, int]:
        """The tokens that an example adds to the forward pass of each prompt."""
        return {
            name: len(item[numbers[0]].ids)
            - len(self.prefixes[name])
            + (self.copies or 1) * sum(item[number].tail for number in numbers)
            for name, numbers in self.parts.items()
        }

    def run(self, items: list[list[TokenSequence]]) -> list[Tensor]:
        """All passes of some examples, one block per device: [components, layers, passes, positions, examples, width].

        The layers of the blocks follow one another.
        """
        shape = (len(items[0]), len(items[0][0].keep), len(items), self.width)
        blocks = [
            torch.empty((len(self.recorder.components), count, *shape), dtype=self.model.dtype, device=device)
            for device, count in Counter(self.recorder.devices).items()
        ]
        for name, numbers in self.parts.items():
            past = self.prefixes[name]
            sequences = [[item[i] for i in numbers] for item in items]
            pack = Pack([grow_tree(some, len(past), self.copies) for some in sequences], len(past))
            mine = slice(numbers[0], numbers[-1] + 1)
            into = [layer for block in blocks for layer in block[:, :, mine].flatten(2, 4).unbind(1)]
            with self.recorder.watching(self._watch(pack, sequences, into)):
                run_decoder(self.model, pack, past)
        return blocks

    def _watch(self, pack: Pack, sequences: list[list[TokenSequence]], into: list[Tensor]) -> Watch:
        copies, device = self.copies or 1, into[0].device
        keep, back = [], []
        for copy in range(copies):
            places = np.array(
                [
                    [pack.places(tree, 1 + i * copies + copy, sequence.keep) for i, sequence in enumerate(some)]
                    for tree, some in enumerate(sequences)
                ]
            )  # [examples, passes, positions]
            keep.append(to_device(places.transpose(1, 2, 0).ravel(), device))
            if self.copies is not None:
                branches = range(1 + copy, 1 + len(sequences[0]) * copies, copies)
                own, clean = pack.with_trunk_places(branches)
                back.append((to_device(own, device), to_device(clean, device)))
        return Watch(keep, into, back)
