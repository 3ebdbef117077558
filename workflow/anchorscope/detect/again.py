"""A model runs its answers again, from files to files: asked about them, and with its attention shifted.

Both in one job: to load a model and to try it takes as long as to ask about many answers.

Pathway Reweighting shifts attention towards the pathway that a gate predicts. For the answer's queries, g log(1 + a) is
added to the scores of keys in E_Q and (1 - g) log(1 + a) to those of keys in E_A, in every layer. Here g is the gate's
chance that the example is Question-Anchored, and a the amount.
"""

from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from anchorscope.answer.prompts import ModelSettings, Prompt, PromptSet
from anchorscope.detect.asking import ASKED, OPTIONS, ask_about, build_askings, write_asked
from anchorscope.detect.names import AMOUNTS, GATES, SHIFTS, layer_read
from anchorscope.detect.reweighted_file import write_reweighted
from anchorscope.engine.door import Engine
from anchorscope.engine.work import Bias, Variant, Work
from anchorscope.extract.axes import EXACT, Headline, Pass
from anchorscope.extract.job import NEEDED as EXTRACTED
from anchorscope.extract.sequences import Workload, build_workload, kept_answer
from anchorscope.files.sealed_parquet import read_table
from anchorscope.models.loading import computed_on, leave_cards, load_fetched_tokenizer, load_model
from anchorscope.models.manifest import Manifest
from anchorscope.probe.examples import too_few

PASSES: list[Pass] = [("first", EXACT), ("first", "whole_question")]  # whose cut tokens are E_Q and the question
NEEDED = [*EXTRACTED, "answer"]


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


@dataclass(frozen=True)
class AgainSettings(ModelSettings):
    """How the chosen examples of a shard are run, under the first prompt."""

    headline: Headline  # what is read where attention is shifted
    about: PromptSet  # the parts of the prompts that ask about answers


def run_again(
    chosen: Path | str,
    gates: Path | str,
    manifest: Path | str,
    asked: Path | str,
    reweighted: Path | str,
    settings: AgainSettings,
) -> None:
    """Write what the model says of its chosen answers in a shard, and its states under shifted attention.

    Without gates there are no such states. Everything that needs no card is done before one is taken.
    """
    described, few, headline = Manifest.read(manifest), too_few(gates), settings.headline
    examples = read_table(chosen, NEEDED)
    ids, questions, answers = (examples[name].to_pylist() for name in ("id", "question", "answer"))
    made = settings.made("run_again", described)
    said = [torch.empty(0, len(OPTIONS[name])) for name in ASKED]
    states = torch.empty(1 + len(SHIFTS), 0, described.width)
    if ids:
        tokenizer = load_fetched_tokenizer(described)
        askings = build_askings(tokenizer, settings.about, questions, answers)
        workload = workload_of(tokenizer, settings.prompts.built(tokenizer)["first"], examples, headline.position)
        marked = marked_examples(workload, examples, headline.position)
        chances = None if few else gates_of(gates, ids)
        model = load_model(described, settings.dtype, settings.threads)
        engine = Engine(model, settings.batch_tokens)
        engine.prepare(workload.work(headline.grid(), engine.layers, EXACT))
        made |= {"computed": computed_on(model), "path": engine.how()}
        said = ask_about(engine, askings)
        if chances is not None:
            states = reweighted_states(engine, headline, marked, chances)
        leave_cards(model)
    write_asked(asked, ids, said, made | {"prompts": settings.about.as_json()})
    shift = {"headline": [headline.component, headline.position], "layer": layer_read(described.layers)}
    why = few.metadata() if few else {}
    write_reweighted(reweighted, [] if few else ids, states, made | shift | why)


def gates_of(file: Path | str, ids: list[str]) -> np.ndarray:
    """g of every gate for each of these examples, [examples, gates]."""
    table = read_table(file, ["id", *GATES])
    place = {name: row for row, name in enumerate(table["id"].to_pylist())}
    missing = [name for name in ids if name not in place]
    if missing:
        raise ValueError(f"{file} has no gates for example {missing[0]}; delete it, and run again.")
    found = np.stack([table[gate].to_numpy() for gate in GATES], axis=1)
    return found[[place[name] for name in ids]]
