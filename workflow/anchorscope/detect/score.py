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

    def path(self, model: PreTrainedModel, longest: list[int], shared: int, component: str) -> Path:
        """Tried again where the model has moved or computes otherwise, or where a longer sequence comes."""
        now = (model.dtype, model.device, model.config._attn_implementation, shared)
        path, (before, length) = self.tried.get(model, (None, (None, 0)))
        if path is None or now != before or len(longest) > length:
            workload = Workload(
                [{}], [[TokenSequence(np.array(longest), [], [])]], shared={"first": shared}, passes=CLEAN
            )
            path = path_for(model, workload, [component], window=None)
            assert path is not None  # there is a sequence
            self.tried[model] = path, (now, len(longest))
        return path


@dataclass(frozen=True)
class Batch:
    """Logits of all tokens of some answers, wherever they were computed, and which of them are asked for."""

    logits: Tensor  # [tokens]
    places: dict[int, int]  # among these tokens, by the number of the answer; without empty answers and refusals


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
        batches = (batch for answered in portions for batch in self._run(model, answered))
        done = list(progress(batches, len(answers), "scoring answers", weight=lambda batch: len(batch.places)))
        logits = torch.full((len(answers),), torch.nan)
        for batch in done:
            logits[list(batch.places)] = batch.logits.cpu()[list(batch.places.values())]
        read = {number for batch in done for number in batch.places}
        for number in (~logits.isfinite()).nonzero().flatten().tolist():
            if number in read:
                raise ValueError(
                    f"The states of answer {number + 1}, {answers[number].strip()!r}, are not finite; load the model "
                    "in bfloat16 or float32."
                )
        if len(read) < len(answers):
            unread = len(answers) - len(read)
            log.warning("%d of %d answers are empty or refusals and get no score", unread, len(answers))
        return logits

    def _run(self, model: PreTrainedModel, answered: Answered) -> Iterator[Batch]:
        """The batches of a portion."""
        given, longest = answered.given, max((one.ids for one in answered.given), key=len)
        path = self.ways.path(model, longest, answered.shared, self.component)
        with path.running(model):
            begin, shared = [longest[: answered.shared]], answered.shared
            reader = StateReader(model, path, self.component, self.layer, begin=begin, shared=shared)
            probe, known = self.probe.to(model.device), 0 if reader.openings is None else shared

            def run(batch: list[int]) -> None:
                some = [given[index] for index in batch]
                counts = [len(one.ids) - one.first + 1 for one in some]  # the answer, and the token before it
                states = reader.read_ends([one.ids for one in some], counts)
                logits = probe.to(states.device).logits(states[None])[0]
                # Nothing has waited for these yet: while a card computes them, the token of each answer is looked for.
                tokens = [one.token_at(self.position) for one in some]
                ends = np.cumsum(counts).tolist()
                places = {
                    answered.numbers[index]: end - len(one.ids) + token
                    for index, one, token, end in zip(batch, some, tokens, ends, strict=True)
                    if token is not None
                }
                made.append(Batch(logits, places))

            made: list[Batch] = []
            sizes = [len(one.ids) - known for one in given]
            for _ in finished_batches(run, sizes, self.batch_tokens or default_tokens(model)):
                yield made.pop()
