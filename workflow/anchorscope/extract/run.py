"""Clean and knocked-out activations of every layer: one forward pass per prompt runs all passes of an example.

The state at layer l depends only on layers 0 ... l. So one pass with the knockout in every layer gives the right state
for every l.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from transformers import PreTrainedModel

from anchorscope.answer.prompts import check_length
from anchorscope.engine.batches import default_tokens, run_batches
from anchorscope.engine.self_check import Path, choose_path, relative_difference
from anchorscope.extract.axes import Grid, window_of
from anchorscope.extract.passes import passes_on
from anchorscope.extract.recorder import check_components, recording
from anchorscope.extract.sequences import Workload
from anchorscope.extract.store import ActivationWriter, example_bytes
from anchorscope.extract.writer import writing

# What is kept of a batch of examples of mean length. At most four batches are on their way from the device to the file,
# and memory for them comes in powers of two: so even batches of the shortest examples fit into a gigabyte each.
KEPT_BYTES = 5 * 2**27


@torch.inference_mode()
def path_for(model: PreTrainedModel, workload: Workload, components: Sequence[str], window: int | None) -> Path | None:
    """How the model is run, by trying it on the longest example; None where there is none. Refuses what cannot be."""
    if not workload.sequences:
        return None
    longest = max(workload.sequences, key=lambda item: len(item[0].ids))
    kind = model.config.get_text_config().model_type
    check_length(max(len(sequence.ids) for item in workload.sequences for sequence in item), model.config)
    path = choose_path(model, longest[0].ids.tolist(), workload.shared[workload.passes[0][0]])
    check_components(path.parts, components, kind)
    if path.name == "packed" and window is not None:
        trial = replace(workload, keys=workload.keys[:1], sequences=[longest])
        some, other = (_trial_states(model, way, trial, window) for way in (path, path.plain()))
        if not path.same(some, other):
            difference = relative_difference(some, other, model.dtype)
            return path.plain(f"layers reuse what others computed before the window (difference {difference:.2g})")
    return path


def _trial_states(model: PreTrainedModel, path: Path, workload: Workload, window: int) -> Tensor:
    """[layers, width] of one example, all passes and positions side by side."""
    with path.running(model), recording(path.parts, ["resid"]) as recorder:
        passes = passes_on(path, model, recorder, workload=workload, window=window)
        blocks = passes.run(workload.sequences)  # [1, layers, passes, positions, 1, width] each
    return torch.cat([block[0].flatten(1).float().cpu() for block in blocks])


def run_workload(
    model: PreTrainedModel,
    workload: Workload,
    writer: ActivationWriter,
    *,
    batch_tokens: int | None,
    path: Path | None = None,
    computed: Callable[[], None] = lambda: None,
) -> None:
    """Run every pass of every example and stream the kept vectors to `writer`.

    `path` says how, if that was tried out before. `computed` is called when the model is no longer needed, while the
    last batches are still being written.
    """
    window = window_of(writer.knockout)
    path = path or path_for(model, workload, writer.grid.components, window)
    with writing(writer) as write:
        if path is not None:
            _run_batches(model, workload, writer.grid, path=path, write=write, batch_tokens=batch_tokens, window=window)
        computed()


@torch.inference_mode()
def _run_batches(
    model: PreTrainedModel,
    workload: Workload,
    grid: Grid,
    *,
    path: Path,
    write: Callable[[list[dict], list[Tensor]], None],
    batch_tokens: int | None,
    window: int | None,
) -> None:
    sequences, keys = workload.sequences, workload.keys
    with path.running(model), recording(path.parts, grid.components) as recorder:
        passes = passes_on(path, model, recorder, workload=workload, window=window)

        def run(batch: list[int]) -> None:
            blocks = passes.run([sequences[index] for index in batch])
            write([keys[index] for index in batch], blocks)

        sizes = [max(passes.tokens(item).values()) for item in sequences]
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
