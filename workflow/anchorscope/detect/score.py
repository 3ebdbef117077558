"""Reads one layer of a model while it reads answers, and applies a probe there; later layers are not run."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from anchorscope.detect.given_answers import Answered
from anchorscope.detect.trained import Trained
from anchorscope.engine.door import Engine
from anchorscope.engine.work import Variant, Work
from anchorscope.files.logs import log, meter


@dataclass(frozen=True)
class Batch:
    """Logits of all tokens of some answers, wherever they were computed, and which of them are asked for."""

    logits: Tensor  # [tokens]
    places: dict[int, int]  # among these tokens, by the number of the answer; without empty answers and refusals


@dataclass(frozen=True)
class Scoring:
    """What is read, and how it is judged."""

    component: str
    position: str
    layer: int
    probe: Trained  # of that layer

    def logits(self, engine: Engine, portions: Iterable[Answered], answers: Sequence[str]) -> Tensor:
        """Logits [answers] in the machine's own memory; NaN for an empty answer or a refusal."""
        with meter(len(answers), "scoring answers") as scored:
            done = [batch for answered in portions for batch in self._run(engine, answered, scored)]
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

    def _run(self, engine: Engine, answered: Answered, scored: Callable[[int], None]) -> list[Batch]:
        """The batches of a portion."""
        given, made = answered.given, []
        # The answer, and the token before it.
        items = [[[Variant(np.array(one.ids), read=[*range(one.first - 1, len(one.ids))])]] for one in given]

        @torch.inference_mode()
        def take(batch: list[int], blocks: list[Tensor]) -> None:
            states, some = blocks[0][0], [given[index] for index in batch]
            logits = self.probe.to(states.device).logits(states)[0]
            # Nothing has waited for these yet: while a card computes them, the token of each answer is looked for.
            tokens = [one.token_at(self.position) for one in some]
            ends = np.cumsum([len(one.ids) - one.first + 1 for one in some]).tolist()
            places = {
                answered.numbers[index]: end - len(one.ids) + token
                for index, one, token, end in zip(batch, some, tokens, ends, strict=True)
                if token is not None
            }
            made.append(Batch(logits, places))
            scored(len(batch))

        engine.states(Work(items, [self.component], [self.layer], by_item=True), take)
        return made
