"""Reads one layer of a model while it reads answers, and applies a probe there; later layers are not run."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from anchorscope.detect.given_answers import Answered
from anchorscope.detect.trained import Trained
from anchorscope.engine.batches import default_tokens, run_batches
from anchorscope.engine.packing import to_device
from anchorscope.engine.parts import Parts
from anchorscope.engine.self_check import Path
from anchorscope.extract.axes import Pass
from anchorscope.extract.passes import Passes, passes_on
from anchorscope.extract.recorder import Recorder, recording
from anchorscope.extract.run import path_for
from anchorscope.extract.sequences import TokenSequence, Workload
from anchorscope.files.logs import log

CLEAN: list[Pass] = [("first", "clean")]


class Ways:
    """How models are run, each tried out once: the trial takes longer than to score a few answers."""

    def __init__(self) -> None:
        self.tried: WeakKeyDictionary[PreTrainedModel, tuple[Path, tuple]] = WeakKeyDictionary()

    def path(self, model: PreTrainedModel, workload: Workload, component: str) -> Path:
        """Tried again where the model has moved or computes otherwise, or where a longer sequence comes."""
        length = len(workload.sequences[0][0].ids)
        now = (model.dtype, model.device, model.config._attn_implementation, workload.shared["first"])
        path, (before, longest) = self.tried.get(model, (None, (None, 0)))
        if path is None or now != before or length > longest:
            path = path_for(model, workload, [component], window=None)
            assert path is not None  # there is a sequence
            self.tried[model] = path, (now, length)
        return path


@torch.inference_mode()
def read_logits(
    model: PreTrainedModel,
    answered: Answered,
    probe: Trained,  # of the layer that is read
    *,
    ways: Ways,
    component: str,
    position: str,
    layer: int,
    batch_tokens: int | None,
) -> Tensor:
    """Logits [answers] in the machine's own memory; NaN for an empty answer or a refusal."""
    given = answered.given
    if not given:
        return torch.empty(0)
    longest = TokenSequence(max((one.ids for one in given), key=len), [], [])
    workload = Workload(keys=[{}], sequences=[[longest]], shared={"first": answered.shared}, passes=CLEAN)
    path = ways.path(model, workload, component)
    with path.running(model), _stopping(path, layer, component) as recorder:
        passes = passes_on(path, model, recorder, workload=workload)
        logits = torch.full((len(given),), torch.nan, device=recorder.devices[0])
        there = probe.to(logits.device)

        def run(batch: list[int]) -> None:
            found = [(index, sequence) for index in batch if (sequence := given[index].sequence(position))]
            if found:
                states = _states(passes, [[sequence] for _, sequence in found])
                places = to_device(np.array([index for index, _ in found]), logits.device)
                logits.index_copy_(0, places, there.logits(states[None])[0])

        sizes = [passes.tokens([replace(longest, ids=one.ids)])["first"] for one in given]
        run_batches(run, sizes, batch_tokens or default_tokens(model), what="scoring answers")
    arrived = logits.cpu()
    _check_finite(arrived, answered, position)
    return arrived


class _Reached(Exception):
    """The layer that is read has run."""

    def __init__(self, states: Tensor):
        super().__init__()
        self.states = states  # [vectors, width]


@contextmanager
def _stopping(path: Path, layer: int, component: str) -> Iterator[Recorder]:
    """A recorder of one layer, which ends every forward pass that it watches after that layer."""
    block = path.parts.blocks[layer]
    with recording(Parts([block], path.parts.stream), [component]) as recorder:

        def stop(module: nn.Module, inputs: Any, output: Any) -> None:
            if recorder.watch is not None:
                raise _Reached(recorder.watch.into[0][0])

        handle = block.module.register_forward_hook(stop)  # runs after the recorder's own
        try:
            yield recorder
        finally:
            handle.remove()


def _states(passes: Passes, items: list[list[TokenSequence]]) -> Tensor:
    """The states [examples, width] of the layer that is read."""
    try:
        passes.run(items)
    except _Reached as reached:
        return reached.states
    raise RuntimeError("The layer that is read did not run.")


def _check_finite(logits: Tensor, answered: Answered, position: str) -> None:
    """Refuse a logit that is not finite without a reason; the log says how many answers were not scored."""
    unread = (~logits.isfinite()).nonzero().flatten().tolist()
    for index in unread:
        one = answered.given[index]
        if one.sequence(position) is not None:
            raise ValueError(
                f"The states of answer {index + 1}, {one.answer.strip()!r}, are not finite; load the model in bfloat16 "
                "or float32."
            )
    if unread:
        log.warning("%d of %d answers are empty or refusals and get no score", len(unread), len(logits))
