"""Reads one layer of a model while it reads answers, and applies a probe there; later layers are not run."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from anchorscope.detect.given_answers import Answered
from anchorscope.detect.state_reader import StateReader
from anchorscope.detect.trained import Trained
from anchorscope.engine.batches import default_tokens, finished_batches
from anchorscope.engine.self_check import Path
from anchorscope.extract.axes import Pass
from anchorscope.extract.run import path_for
from anchorscope.extract.sequences import TokenSequence, Workload
from anchorscope.files.logs import log, progress

CLEAN: list[Pass] = [("first", "clean")]


class Ways:
    """How models are run, each tried out once: the trial takes longer than to score a few answers."""

    def __init__(self) -> None:
        self.tried: WeakKeyDictionary[PreTrainedModel, tuple[Path, tuple]] = WeakKeyDictionary()

    def path(self, model: PreTrainedModel, longest: np.ndarray, shared: int, component: str) -> Path:
        """Tried again where the model has moved or computes otherwise, or where a longer sequence comes."""
        now = (model.dtype, model.device, model.config._attn_implementation, shared)
        path, (before, length) = self.tried.get(model, (None, (None, 0)))
        if path is None or now != before or len(longest) > length:
            workload = Workload([{}], [[TokenSequence(longest, [], [])]], shared={"first": shared}, passes=CLEAN)
            path = path_for(model, workload, [component], window=None)
            assert path is not None  # there is a sequence
            self.tried[model] = path, (now, len(longest))
        return path


@dataclass(frozen=True)
class Scoring:
    """What is read, how it is judged, and how models are run."""

    component: str
    position: str
    layer: int
    probe: Trained  # of that layer
    ways: Ways
    batch_tokens: int | None

    @torch.inference_mode()
    def logits(self, model: PreTrainedModel, portions: Iterable[Answered], answers: Sequence[str]) -> Tensor:
        """Logits [answers] in the machine's own memory; NaN for an empty answer or a refusal."""
        found: list[tuple[list[int], Tensor]] = []
        unread: set[int] = set()
        done = (batch for answered in portions for batch in self._run(model, answered, found, unread))
        for _ in progress(done, len(answers), "scoring answers", weight=len):
            pass
        logits = torch.full((len(answers),), torch.nan)
        for numbers, some in found:
            logits[numbers] = some.cpu()
        for number in (~logits.isfinite()).nonzero().flatten().tolist():
            if number not in unread:
                raise ValueError(
                    f"The states of answer {number + 1}, {answers[number].strip()!r}, are not finite; load the model "
                    "in bfloat16 or float32."
                )
        if unread:
            log.warning("%d of %d answers are empty or refusals and get no score", len(unread), len(answers))
        return logits

    def _run(
        self, model: PreTrainedModel, answered: Answered, found: list[tuple[list[int], Tensor]], unread: set[int]
    ) -> Iterator[list[int]]:
        """Batches of a portion that are done; their logits are added to `found`, what cannot be read to `unread`.

        On a GPU nothing waits for the logits, so that the next batch is made ready while this one is run.
        """
        given, longest = answered.given, max((one.ids for one in answered.given), key=len)
        path = self.ways.path(model, longest, answered.shared, self.component)
        with path.running(model):
            reader = StateReader(model, path, self.component, self.layer, longest[: answered.shared])
            probe = self.probe.to(model.device)

            def run(batch: list[int]) -> None:
                sequences = {index: ids for index in batch if (ids := given[index].up_to(self.position)) is not None}
                numbers = [answered.numbers[index] for index in sequences]
                unread.update(answered.numbers[index] for index in batch if index not in sequences)
                if sequences:
                    states = reader.read_last(list(sequences.values()))
                    found.append((numbers, probe.to(states.device).logits(states[None])[0]))

            known = len(reader.past) if reader.past is not None else 0
            sizes = [len(one.ids) - known for one in given]
            yield from finished_batches(run, sizes, self.batch_tokens or default_tokens(model))
