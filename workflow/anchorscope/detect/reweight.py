"""Pathway Reweighting: states under attention that is shifted towards the pathway that a gate predicts.

For the answer's queries, g log(1 + a) is added to the scores of keys in E_Q and (1 - g) log(1 + a) to those of keys in
E_A, in every layer. Here g is the gate's chance that the example is Question-Anchored, and a the amount.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from anchorscope.answer.prompts import Prompt
from anchorscope.detect.names import AMOUNTS, SHIFTS, layer_read
from anchorscope.detect.state_reader import StateReader
from anchorscope.engine.attention import run_decoder
from anchorscope.engine.batches import default_tokens, run_batches
from anchorscope.engine.openings import Openings
from anchorscope.engine.packing import Branch, Pack, Tree, trunk
from anchorscope.engine.plain import Bias, Row, run_rows
from anchorscope.engine.self_check import Path
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

    @property
    def begin(self) -> np.ndarray:
        """The tokens before any whose state is read."""
        return self.ids[: self.question_last]

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
        (read,) = exact.keep
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


class Reweighting:
    """A model that is ready to run examples under every shift, up to the module that is read."""

    def __init__(
        self, model: PreTrainedModel, path: Path, headline: Headline, examples: list[MarkedExample], shared: int
    ):
        """All examples begin with the same `shared` tokens."""
        self.model, self.parts = model, path.parts
        layer, begin = layer_read(len(path.parts.blocks)), [example.begin for example in examples]
        self.reader = StateReader(model, path, headline.component, layer, begin=begin, shared=shared)

    def tokens(self, example: MarkedExample) -> int:
        """How many tokens an example adds to a forward pass."""
        openings = self.reader.openings
        if openings is None:
            return len(SHIFTS) * len(example.ids)
        known = len(openings.known(example.begin))
        return example.answer - known + len(SHIFTS) * (len(example.ids) - example.answer)

    def run(self, examples: list[MarkedExample], gates: np.ndarray) -> Tensor:
        """States [1 + shifts, examples, width]: the question's last token, then what is read under each shift.

        `gates` are [examples, gates].
        """
        biases = [
            [example.bias(g, amount) for g, amount in product(mine, AMOUNTS[1:])]
            for example, mine in zip(examples, gates.tolist(), strict=True)
        ]
        openings = self.reader.openings
        run, places = self._plain(examples, biases) if openings is None else self._packed(examples, biases, openings)
        return self.reader.read(run, places.T.ravel()).unflatten(0, places.T.shape)

    def _packed(
        self, examples: list[MarkedExample], biases: list[list[np.ndarray]], openings: Openings
    ) -> tuple[Callable[[], object], np.ndarray]:
        """What runs the examples, and where states are read [examples, 1 + shifts].

        The prompt is the trunk; a branch for each shift begins with the answer.
        """
        trees = [
            _tree(example, mine, known=openings.known(example.begin))
            for example, mine in zip(examples, biases, strict=True)
        ]
        pack = Pack(trees, len(openings.past))
        places = [
            [
                *pack.places(tree, 0, [example.question_last]),
                *(pack.places(tree, 1 + shift, [example.read])[0] for shift in range(len(SHIFTS))),
            ]
            for tree, example in enumerate(examples)
        ]
        return lambda: run_decoder(self.model, pack, openings.past), np.array(places)

    def _plain(
        self, examples: list[MarkedExample], biases: list[list[np.ndarray]]
    ) -> tuple[Callable[[], object], np.ndarray]:
        """The same with a row for each shift. The question's last token is the same in all of them."""
        layers = range(len(self.parts.blocks))
        rows = [
            Row(example.ids, cut=[], layers=layers, bias=Bias(example.answer, bias))
            for example, mine in zip(examples, biases, strict=True)
            for bias in mine
        ]
        length = max(len(example.ids) for example in examples)
        first = np.arange(len(examples))[:, None] * len(SHIFTS)  # the first row of each example
        shifts = np.array([[0, *range(len(SHIFTS))]])
        tokens = np.array([[example.question_last, *[example.read] * len(SHIFTS)] for example in examples])
        return lambda: run_rows(self.model, self.parts, rows), (first + shifts) * length + tokens


def _tree(example: MarkedExample, biases: list[np.ndarray], known: np.ndarray) -> Tree:
    start = example.answer
    prompt = trunk(known, example.ids[len(known) : start])
    answer, positions = example.ids[start:].astype(np.int64), np.arange(start, len(example.ids))
    branches = [Branch(answer, positions, fork=start, bias=bias) for bias in biases]
    return Tree(prompt.known, [*prompt.branches, *branches])


@torch.inference_mode()
def reweighted_states(
    model: PreTrainedModel,
    path: Path,
    headline: Headline,
    examples: list[MarkedExample],
    gates: np.ndarray,  # [examples, gates]
    *,
    shared: int,  # how many tokens all examples begin with
    batch_tokens: int | None,
) -> Tensor:
    """States [1 + shifts, examples, width] on the host, in the model's own dtype."""
    width = model.config.get_text_config().hidden_size
    found = torch.empty(1 + len(SHIFTS), len(examples), width, dtype=model.dtype)
    with path.running(model):
        reweighting = Reweighting(model, path, headline, examples, shared)

        def run(batch: list[int]) -> None:
            found[:, batch] = reweighting.run([examples[index] for index in batch], gates[batch]).cpu()

        sizes = [reweighting.tokens(example) for example in examples]
        run_batches(run, sizes, batch_tokens or default_tokens(model), what="reweighting attention")
    return found
