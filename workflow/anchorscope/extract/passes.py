"""All passes of a batch of examples, in packs or in plain batches."""

from collections import Counter

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from anchorscope.engine.attention import run_decoder
from anchorscope.engine.openings import Openings
from anchorscope.engine.packing import Pack, to_device
from anchorscope.engine.plain import Row, run_rows
from anchorscope.engine.self_check import Path
from anchorscope.extract.recorder import Recorder, Watch
from anchorscope.extract.sequences import TokenSequence, Workload, beginning, grow_tree


class Passes:
    """A model that is ready to run batches of examples."""

    def __init__(self, model: PreTrainedModel, recorder: Recorder, workload: Workload, window: int | None):
        self.model = model
        self.recorder = recorder
        self.width = model.config.get_text_config().hidden_size
        self.layers = len(recorder.parts.blocks)
        self.window = None if window is None else min(window, self.layers)
        # The passes of a prompt follow one another, so that one forward pass fills one stretch of the block.
        self.numbers = {
            name: [number for number, (prompt, _) in enumerate(workload.passes) if prompt == name]
            for name in workload.shared
        }

    def tokens(self, item: list[TokenSequence]) -> dict[str, int]:
        """The tokens that an example adds to the forward pass of each prompt."""
        return {name: self._tokens(name, [item[i] for i in numbers]) for name, numbers in self.numbers.items()}

    def run(self, items: list[list[TokenSequence]]) -> list[Tensor]:
        """All passes of some examples, one block per device: [components, layers, passes, positions, examples, width].

        The layers of the blocks follow one another.
        """
        shape = (len(items[0]), len(items[0][0].keep), len(items), self.width)
        blocks = [
            torch.empty((len(self.recorder.components), count, *shape), dtype=self.model.dtype, device=device)
            for device, count in Counter(self.recorder.devices).items()
        ]
        for name, numbers in self.numbers.items():
            mine = slice(numbers[0], numbers[-1] + 1)
            into = [layer for block in blocks for layer in block[:, :, mine].flatten(2, 4).unbind(1)]
            self._run(name, [[item[i] for i in numbers] for item in items], into)
        return blocks

    def _tokens(self, prompt: str, sequences: list[TokenSequence]) -> int:
        raise NotImplementedError

    def _run(self, prompt: str, sequences: list[list[TokenSequence]], into: list[Tensor]) -> None:
        """One forward pass of every example's sequences under one prompt, kept in `into`, one tensor per layer."""
        raise NotImplementedError


class PackedPasses(Passes):
    """Trees on what their sequences begin with alike, which is computed once.

    With a window, every cut branch has as many copies as the window has layers. Each in turn is set back to the clean
    state, and is read when it has run through the window's layers.
    """

    def __init__(self, model: PreTrainedModel, recorder: Recorder, workload: Workload, window: int | None):
        super().__init__(model, recorder, workload, window)
        self.openings = {
            name: Openings(
                model,
                [beginning([item[i] for i in numbers]) for item in workload.sequences],
                prefix=workload.shared[name],
            )
            for name, numbers in self.numbers.items()
        }

    def _tokens(self, prompt: str, sequences: list[TokenSequence]) -> int:
        trunk = sequences[0].ids
        tails = (self.window or 1) * sum(sequence.tail(trunk) for sequence in sequences)
        return len(trunk) - len(self.openings[prompt].known(beginning(sequences))) + tails

    def _run(self, prompt: str, sequences: list[list[TokenSequence]], into: list[Tensor]) -> None:
        openings = self.openings[prompt]
        trees = [grow_tree(some, openings.known(beginning(some)), self.window) for some in sequences]
        pack = Pack(trees, len(openings.past))
        with self.recorder.watching(self._watch(pack, sequences, into)):
            run_decoder(self.model, pack, openings.past)

    def _watch(self, pack: Pack, sequences: list[list[TokenSequence]], into: list[Tensor]) -> Watch:
        copies, device = self.window or 1, into[0].device
        keep, back = [], []
        for copy in range(copies):
            places = np.array(
                [
                    [pack.places(tree, 1 + i * copies + copy, sequence.keep) for i, sequence in enumerate(some)]
                    for tree, some in enumerate(sequences)
                ]
            )  # [examples, passes, positions]
            keep.append(to_device(places.transpose(1, 2, 0).ravel(), device))
            if self.window is not None:
                branches = range(1 + copy, 1 + len(sequences[0]) * copies, copies)
                own, clean = pack.with_trunk_places(branches)
                back.append((to_device(own, device), to_device(clean, device)))
        # The copy whose window ends at a layer began `copies` - 1 layers before it, or at the first layer.
        read = [max(0, layer - copies + 1) % copies for layer in range(self.layers)]
        set_back = [back[layer % copies] for layer in range(self.layers)] if back else []
        return Watch([keep[copy] for copy in read], into, set_back)


class PlainPasses(Passes):
    """Whole sequences through the model's own code. With a window, each cut sequence is run once for every layer."""

    def _rows(self, sequence: TokenSequence) -> list[Row]:
        """The runs of a sequence: one, or with a window one for each layer, cut in the last layers up to it."""
        everywhere = range(self.layers)
        if self.window is None or not sequence.cut:
            return [Row(sequence.ids, sequence.cut, everywhere)]
        windows = [everywhere[max(0, layer - self.window + 1) : layer + 1] for layer in everywhere]
        return [Row(sequence.ids, sequence.cut, window) for window in windows]

    def _tokens(self, prompt: str, sequences: list[TokenSequence]) -> int:
        return sum(len(row.ids) for sequence in sequences for row in self._rows(sequence))

    def _run(self, prompt: str, sequences: list[list[TokenSequence]], into: list[Tensor]) -> None:
        runs = [[self._rows(sequence) for sequence in some] for some in sequences]
        rows = [row for some in runs for mine in some for row in mine]
        device, length = into[0].device, max(len(row.ids) for row in rows)
        counts = np.array([[len(mine) for mine in some] for some in runs])  # [examples, passes]
        first = counts.cumsum().reshape(counts.shape) - counts  # the first row of each sequence
        kept = np.array([[sequence.keep for sequence in some] for some in sequences])  # [examples, passes, positions]

        def places(layer: int) -> Tensor:
            found = (first + layer % counts)[:, :, None] * length + kept
            return to_device(found.transpose(1, 2, 0).ravel(), device)

        keep = [places(0)] * self.layers if self.window is None else [places(layer) for layer in range(self.layers)]
        with self.recorder.watching(Watch(keep, into)):
            run_rows(self.model, self.recorder.parts, rows)


def passes_on(
    path: Path,
    model: PreTrainedModel,
    recorder: Recorder,
    *,
    workload: Workload,
    window: int | None = None,
) -> Passes:
    kind = PackedPasses if path.name == "packed" else PlainPasses
    return kind(model, recorder, workload, window)
