"""A model runs its answers again, from files to files: asked about them, and with its attention shifted.

Both in one job: to load a model and to try it takes as long as to ask about many answers.

It is shown a question with its answer, and asked whether that is true, and how sure it is of that.

Pathway Reweighting shifts attention towards the pathway that a gate predicts. For the answer's queries, g log(1 + a) is
added to the scores of keys in E_Q and (1 - g) log(1 + a) to those of keys in E_A, in every layer. Here g is the gate's
chance that the example is Question-Anchored, and a the amount.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from anchorscope.answer.prompts import (
    PLACEHOLDER,
    Demonstrations,
    ModelSettings,
    Prompt,
    PromptSet,
    chat_prompt,
    encode,
)
from anchorscope.detect.reweighting import AMOUNTS, GATES, SHIFTS, layer_read, write_reweighted
from anchorscope.engine.door import Engine
from anchorscope.engine.work import Bias, Variant, Work, shared_tokens
from anchorscope.extract.axes import EXACT, Headline, Pass
from anchorscope.extract.job import EXTRACTION_NEEDS
from anchorscope.extract.sequences import Workload, build_workload, place_of
from anchorscope.files.sealed_parquet import provenance, read_table, write_table
from anchorscope.models.loading import leave_gpus, load_fetched_tokenizer
from anchorscope.models.manifest import Manifest
from anchorscope.probe.examples import too_few

TRUE, SURE = ASKED = ("about_true", "about_sure")  # whether the answer is true, and how sure the model is of that
OPTIONS = {TRUE: ("yes", "no"), SURE: tuple("0123456789")}
SCHEMA = pa.schema([("id", pa.string()), ("p_true", pa.float32()), ("confidence", pa.float32())])
CUT_PASSES: list[Pass] = [("first", EXACT), ("first", "whole_question")]  # whose cut tokens are E_Q and the question
NEEDED = [*EXTRACTION_NEEDS, "answer"]


@dataclass(frozen=True)
class Asking:
    """One thing that is asked about every answer."""

    sequences: list[list[int]]  # token ids of each example's prompt, up to where the model says one of the options
    options: list[int]  # the token by which each option is told from the others


def build_askings(
    tokenizer: PreTrainedTokenizerBase, prompts: PromptSet, questions: Sequence[str], answers: Sequence[str]
) -> list[Asking]:
    """What is asked about the answers to some questions, in the order of `ASKED`."""
    shown = [
        f"{question}\nAnswer: {_without_marks(tokenizer, answer)}"
        for question, answer in zip(questions, answers, strict=True)
    ]
    return [
        _asking(tokenizer, prompt, shown, OPTIONS[name]) for name, prompt in _about_prompts(tokenizer, prompts).items()
    ]


def _without_marks(tokenizer: PreTrainedTokenizerBase, answer: str) -> str:
    """An answer without what spells a control token, which would end a turn, or the text."""
    for mark in (added.content for added in tokenizer.added_tokens_decoder.values() if added.special):
        answer = answer.replace(mark, "")
    return answer


def _about_prompts(tokenizer: PreTrainedTokenizerBase, prompts: PromptSet) -> dict[str, Prompt]:
    """The text around a question and its answer, for each thing that is asked."""
    header, texts = prompts.texts["about_header"], {name: cast(str, prompts.texts[name]) for name in ASKED}
    if prompts.style == "chat":
        return {
            name: chat_prompt(tokenizer, f"{header}\n\nQuestion: {PLACEHOLDER}\n\n{text}")
            for name, text in texts.items()
        }
    shots = _shown_shots(cast(Demonstrations, prompts.texts["about_shots"]), texts)
    before = f"{header}\n\n{shots}Question: "
    return {name: Prompt(before, f"\n{text}", special_tokens=True) for name, text in texts.items()}


def _shown_shots(shots: Demonstrations, texts: dict[str, str]) -> str:
    """Judged answers. Which of the two comes first takes turns, because each is asked right after an answer."""
    shown = []
    for number, shot in enumerate(shots):
        said = [f"{texts[TRUE]} {shot['true']}", f"{texts[SURE]} {shot['sure']}"]
        first, second = said if number % 2 == 0 else reversed(said)
        shown.append(f"Question: {shot['question']}\nAnswer: {shot['answer']}\n{first}\n{second}\n\n")
    return "".join(shown)


def _asking(tokenizer: PreTrainedTokenizerBase, prompt: Prompt, shown: list[str], options: Sequence[str]) -> Asking:
    """The prompts of all examples, and the tokens of the options as they are in these prompts.

    An option can begin with a token that all of them begin with, such as a space before a digit. That token is then the
    prompt's last one.
    """
    ended = [replace(prompt, after=f"{prompt.after}{prompt.space}{option}") for option in options]
    spelt = [encode(tokenizer, one, shown[:1] or [""])[0].ids for one in ended]
    start = shared_tokens(spelt)
    tokens = [ids[start] for ids in spelt if start < len(ids)]
    if len(set(tokens)) < len(options):
        raise ValueError(
            f"The model's tokenizer does not tell {', '.join(options)} apart by one token, so what the model says of "
            "its answers cannot be read; use the other style of `prompt` for it."
        )
    # Each prompt is tokenised with an option behind it, which is then taken away.
    taken = spelt[0][start:]
    whole = [item.ids for item in encode(tokenizer, ended[0], shown)]
    for ids, text in zip(whole, shown, strict=True):
        if ids[-len(taken) :] != taken:
            raise ValueError(f"The model's tokenizer joins {options[0]!r} with the text before it in {text!r}.")
    return Asking([ids[: -len(taken)] for ids in whole], tokens)


def ask_about(engine: Engine, askings: list[Asking]) -> list[Tensor]:
    """The logits [examples, options] of what the model would say, for each asking.

    The askings of an example share its question and answer, and all examples what comes before, where the prompts do.
    """
    items = [
        [[Variant(np.array(ids), read=[len(ids) - 1]) for ids in some]]
        for some in zip(*(asking.sequences for asking in askings), strict=True)
    ]
    found = [torch.empty(len(items), len(asking.options)) for asking in askings]

    def take(batch: list[int], logits: Tensor) -> None:
        for asking, rows, own in zip(askings, found, logits, strict=True):
            rows[batch] = own[:, asking.options].float().cpu()

    engine.logits(items, take, what="asking about answers")
    return found


def write_asked(target: Path | str, ids: list[str], said: list[Tensor], made: dict) -> None:
    """Write what the logits [examples, options] of both askings come to; `made` says what they were made from."""
    true, sure = said
    odd = true.isnan().any(dim=1) | sure.isnan().any(dim=1)
    if odd.any():
        raise ValueError(
            f"What the model says of example {ids[int(odd.int().argmax())]} is not a number; "
            "set its dtype to bfloat16 or float32."
        )
    p_true = true.softmax(dim=1)[:, 0]
    confidence = sure.argmax(dim=1).to(torch.float32) / (len(OPTIONS[SURE]) - 1)
    table = pa.table([ids, p_true.numpy(), confidence.numpy()], schema=SCHEMA)
    write_table(target, table, provenance(**made))


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
    return build_workload(tokenizer, {"first": prompt}, examples, passes=CUT_PASSES, positions=[position])


def marked_examples(workload: Workload, answers: pa.Table, position: str) -> list[MarkedExample]:
    """What reweighting needs to know of each example; `answers` are those that the workload was built of."""
    found = []
    for (exact, question), row in zip(workload.sequences, answers.to_pylist(), strict=True):
        (read,) = exact.read
        start = read - place_of(position, row)
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

    Without gates there are no such states. Everything that needs no GPU is done before one is taken.
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
        engine = settings.engine(described)
        engine.prepare(workload.work(headline.grid(), engine.layers, EXACT))
        made = {**settings.made("run_again", described, engine), "path": engine.how()}
        said = ask_about(engine, askings)
        if chances is not None:
            states = reweighted_states(engine, headline, marked, chances)
        leave_gpus(engine.model)
    write_asked(asked, ids, said, made | {"prompts": settings.about.as_json()})
    shift = {"headline": [headline.component, headline.position], "layer": layer_read(described.layers)}
    why = few.metadata() if few else {}
    write_reweighted(reweighted, [] if few else ids, states, made | shift | why)


def gates_of(file: Path | str, ids: list[str]) -> np.ndarray:
    """g of every gate for each of these examples, [examples, gates]."""
    known = {row["id"]: [row[gate] for gate in GATES] for row in read_table(file, ["id", *GATES]).to_pylist()}
    missing = [name for name in ids if name not in known]
    if missing:
        raise ValueError(f"{file} has no gates for example {missing[0]}; delete it, and run again.")
    return np.array([known[name] for name in ids])
