"""Pathway Reweighting: states under attention that is shifted towards the pathway that a gate predicts.

For the answer's queries, g log(1 + a) is added to the scores of keys in E_Q and (1 - g) log(1 + a) to those of keys in
E_A, in every layer. Here g is the gate's chance that the example is Question-Anchored, and a the amount.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from anchorscope.answer.prompts import Prompt
from anchorscope.detect.names import AMOUNTS, SHIFTS, layer_read
from anchorscope.engine.door import Engine
from anchorscope.engine.work import Bias, Variant, Work
from anchorscope.extract.axes import EXACT, Headline, Pass
from anchorscope.extract.sequences import Workload, build_workload, kept_answer

PASSES: list[Pass] = [("first", EXACT), ("first", "whole_question")]  # whose cut tokens are E_Q and the question


@dataclass(frozen=True)
class MarkedExample:
    """One example's tokens up to the one that is read, where its answer begins, and which tokens are which."""

    ids: np.ndarray
    answer: int
    read: int
    exact_question: list[int]
    exact_answer: list[int]
    question_last: int

    def bias(self, g: float, amount: float) -> np.ndarray:
        """What is added to the scores of each key [tokens]: in E_Q the share g of log(1 + a), in E_A the rest."""
        added = np.zeros(len(self.ids), np.float32)
        added[self.exact_question] = g * np.log1p(amount)
        added[self.exact_answer] = (1 - g) * np.log1p(amount)
        return added


def workload_of(tokenizer: PreTrainedTokenizerBase, prompt: Prompt, examples: pa.Table, position: str) -> Workload:
    """The answered questions under the first prompt, up to `position`."""
    return build_workload(tokenizer, {"first": prompt}, examples, passes=PASSES, positions=[position])


def marked_examples(workload: Workload, answers: pa.Table, position: str) -> list[MarkedExample]:
    """What reweighting needs to know of each example; `answers` are those that the workload was built of."""
    found = []
    for (exact, question), row in zip(workload.sequences, answers.to_pylist(), strict=True):
        _, (place,) = kept_answer(row, [position])
        (read,) = exact.read
        start = read - place
        span = range(start + row["exact_first"], start + row["exact_last"] + 1)
        found.append(
            MarkedExample(
                ids=exact.ids,
                answer=start,
                read=read,
                exact_question=exact.cut,
                exact_answer=[token for token in span if token <= read],
                question_last=question.cut[-1],
            )
        )
    return found


def reweighted_states(engine: Engine, headline: Headline, examples: list[MarkedExample], gates: np.ndarray) -> Tensor:
    """States [1 + shifts, examples, width] on the host, in the model's own dtype, from gates [examples, gates].

    The question's last token, then what is read under each shift.
    """
    items = [[_variants(example, mine)] for example, mine in zip(examples, gates.tolist(), strict=True)]
    found = torch.empty(1 + len(SHIFTS), len(examples), engine.width, dtype=engine.model.dtype)

    def take(batch: list[int], blocks: list[Tensor]) -> None:
        found[:, batch] = blocks[0][0, 0].unflatten(0, (1 + len(SHIFTS), len(batch))).cpu()

    engine.states(Work(items, [headline.component], [layer_read(engine.layers)]), take, what="reweighting attention")
    return found


def _variants(example: MarkedExample, gates: list[float]) -> list[Variant]:
    """One for each shift, the answer under its bias. The question's last token is the same in all of them."""
    biases = [Bias(example.answer, example.bias(g, amount)) for g, amount in product(gates, AMOUNTS[1:])]
    first = [example.question_last, example.read]
    return [
        Variant(example.ids, read=[example.read] if number else first, bias=bias) for number, bias in enumerate(biases)
    ]
