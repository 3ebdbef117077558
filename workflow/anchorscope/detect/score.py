"""Reads one layer of a model while it reads answers, and applies a probe there; later layers are not run."""

from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from anchorscope.detect.given_answers import Answered
from anchorscope.detect.trained import Trained
from anchorscope.engine.batches import default_tokens, run_batches
from anchorscope.engine.packing import to_device
from anchorscope.engine.parts import Parts
from anchorscope.engine.self_check import Path
from anchorscope.extract.axes import Pass
from anchorscope.extract.passes import passes_on
from anchorscope.extract.recorder import recording
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
    block = path.parts.blocks[layer]
    with path.running(model), recording(Parts([block], path.parts.stream), [component]) as recorder:
        passes = passes_on(path, model, recorder, workload=workload, last=block.module)
        logits = torch.full((len(given),), torch.nan, device=recorder.devices[0])
        there = probe.to(logits.device)

        def run(batch: list[int]) -> None:
            found = [(index, sequence) for index in batch if (sequence := given[index].sequence(position))]
            if found:
                (read,) = passes.run([[sequence] for _, sequence in found])
                states = read[0, 0, 0, 0]  # of the one component, layer, pass and position: [examples, width]
                places = to_device(np.array([index for index, _ in found]), logits.device)
                logits.index_copy_(0, places, there.logits(states[None])[0])

        sizes = [passes.tokens([replace(longest, ids=one.ids)])["first"] for one in given]
        run_batches(run, sizes, batch_tokens or default_tokens(model), what="scoring answers")
    arrived = logits.cpu()
    _check_finite(arrived, answered, position)
    return arrived


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
