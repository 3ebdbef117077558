"""What the methods read of the examples of one model, on one dataset or on several after each other.

Some scores nothing has to learn: what the model's own output says about an answer. Higher means hallucinated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from anchorscope.detect.names import (
    CONFIDENCE,
    MAX_ENTROPY,
    MEAN_ENTROPY,
    MEAN_LOGPROB,
    MIN_LOGPROB,
    P_TRUE,
    SAMPLES,
    SHIFTS,
    SUM_LOGPROB,
    TOKENS,
    WITHOUT_STOP,
    layer_read,
)
from anchorscope.detect.pooled import joint_clusters
from anchorscope.detect.reweighted_file import Reweighted, read_reweighted
from anchorscope.extract.axes import EXACT, Headline, Pass
from anchorscope.extract.store import ActivationReader, open_activations
from anchorscope.files.frames import read_frame
from anchorscope.probe.examples import Examples, enough, examples_of
from anchorscope.probe.fitting import Fitting
from anchorscope.text.normal_words import bare_words

Scores = dict[str, np.ndarray]  # by method: [examples]
PASSES: tuple[Pass, ...] = (("first", "clean"), ("first", EXACT), ("second", "clean"), ("second", EXACT))
ANSWERS_NEEDED = ["id", "question", "answer", "answer_final", "logprobs", "entropies"]
Files = Mapping[str, Sequence[Path | str]]  # by kind: activations, answers, asked, reweighted, and samples if drawn


def token_scores(answers: Sequence[Mapping]) -> Scores:
    """From the log probabilities and entropies of all tokens of each answer, the stop token included.

    Generation ends with the stop token, so all that was generated counts. A token that holds the newline and some of
    the text is both. An answer that was cut off at the limit has no stop token.
    """
    logprobs, entropies = ([np.array(row[name], float) for row in answers] for name in ("logprobs", "entropies"))
    return {
        MEAN_LOGPROB: np.array([-one.mean() for one in logprobs]),
        MIN_LOGPROB: np.array([-one.min() for one in logprobs]),
        SUM_LOGPROB: np.array([-one.sum() for one in logprobs]),
        MEAN_ENTROPY: np.array([one.mean() for one in entropies]),
        MAX_ENTROPY: np.array([one.max() for one in entropies]),
    }


def scores_without_stop(answers: Sequence[Mapping]) -> Scores:
    """The same up to the last token of the answer's text."""
    texts = [{name: row[name][: row["answer_final"] + 1] for name in ("logprobs", "entropies")} for row in answers]
    found = token_scores(texts)
    return {name: found[counted] for name, counted in zip(WITHOUT_STOP, TOKENS, strict=True)}


def asked_scores(asked: Sequence[Mapping]) -> Scores:
    """From what the model says when it is asked about its answer."""
    return {name: 1 - np.array([row[name] for row in asked], float) for name in (P_TRUE, CONFIDENCE)}


def sample_scores(answers: Sequence[str], samples: Sequence[Sequence[str]]) -> Scores:
    """From how far sampled answers agree with the greedy one and with each other."""
    rows = [_compare(answer, some) for answer, some in zip(answers, samples, strict=True)]
    return {name: np.array(values) for name, values in zip(SAMPLES, zip(*rows, strict=True), strict=True)}


def _compare(answer: str, samples: Sequence[str]) -> tuple[float, float, float]:
    """Of one example: one less the agreement, the entropy over clusters in nats, and the lexical spread."""
    greedy, *said = (" ".join(bare_words(text)) for text in (answer, *samples))
    agree = np.mean([belong(greedy, words) for words in said])
    shares = np.bincount(cluster(said)) / len(said)
    pairs = [_overlap(set(one.split()), set(other.split())) for one, other in combinations(said, 2)]
    return float(1 - agree), float(-(shares * np.log(shares)).sum()), float(1 - np.mean(pairs)) if pairs else 0.0


def belong(one: str, other: str) -> bool:
    """Whether two answers are equal, or one contains the other as whole words. No word is part of nothing else."""
    return f" {one} " in f" {other} " or f" {other} " in f" {one} "


def cluster(said: Sequence[str]) -> np.ndarray:
    """The cluster of each answer, [answers], numbered from 0: answers that belong together, directly or over others."""
    numbers = np.arange(len(said))
    for one, other in combinations(range(len(said)), 2):
        if numbers[one] != numbers[other] and belong(said[one], said[other]):
            numbers[numbers == numbers[other]] = numbers[one]
    return np.unique(numbers, return_inverse=True)[1]


def _overlap(one: set[str], other: set[str]) -> float:
    """Jaccard's: the share of their words that two answers have in common; two empty ones are alike."""
    return len(one & other) / len(one | other) if one | other else 1.0


@dataclass(frozen=True)
class Reading:
    """Everything but the states of the other layers."""

    ids: list[str]
    clusters: list[str]
    hallucinated: np.ndarray  # [examples], bool
    folds: np.ndarray  # [examples]
    halves: np.ndarray  # [examples]
    questions: list[str]
    answers: list[str]
    lengths: np.ndarray  # [examples], tokens of the answer
    outputs: Scores  # of the methods that learn nothing
    states: dict[Pass, Tensor]  # at the layer that is read, [examples, width]
    reweighted: Reweighted

    @property
    def labels(self) -> Tensor:
        """1 for hallucinated, [examples]."""
        return torch.from_numpy(self.hallucinated).float()


def read_states(reader: ActivationReader, headline: Headline) -> dict[Pass, Tensor]:
    """The states of the layer that is read, [examples, width] by pass."""
    layer, place = layer_read(reader.layers), (headline.component, headline.position)
    read = reader.read_passes(*place, passes=PASSES, layers=range(layer, layer + 1))
    return {run: states[0].float() for run, states in read.items()}


def reading_of(
    examples: Examples,
    states: dict[Pass, Tensor],
    answers: Mapping[str, Mapping],
    asked: Mapping[str, Mapping],
    samples: Mapping[str, Mapping] | None,
    reweighted: Reweighted,
    answer_scores: bool,
) -> Reading:
    """Put together what is known about some examples; tables are given as rows by id.

    With `answer_scores`, output scores are also there without the stop token.
    """
    if reweighted.ids != examples.ids:
        raise ValueError("The reweighted states are of other examples than the activations; make them again.")
    mine = [answers[name] for name in examples.ids]
    texts = [row["answer"] for row in mine]
    outputs = token_scores(mine) | asked_scores([asked[name] for name in examples.ids])
    if answer_scores:
        outputs |= scores_without_stop(mine)
    if samples is not None:
        outputs |= sample_scores(texts, [samples[name]["samples"] for name in examples.ids])
    return Reading(
        ids=examples.ids,
        clusters=examples.clusters,
        hallucinated=examples.hallucinated,
        folds=examples.splits[0].folds,
        halves=examples.splits[0].halves,
        questions=[row["question"] for row in mine],
        answers=texts,
        lengths=np.array([row["answer_final"] + 1.0 for row in mine]),
        outputs=outputs,
        states=states,
        reweighted=reweighted,
    )


def read_files(files: Files, where: str, answer_scores: bool, fitting: Fitting) -> tuple[ActivationReader, Reading]:
    """The same from the files of all shards of a dataset, and the reader of all its layers."""
    reader = open_activations(files["activations"], fitting.headline.grid(), [EXACT])
    examples = enough(examples_of(reader.keys, folds=fitting.folds, repeats=1, seed=fitting.seed, where=where))
    reading = reading_of(
        examples,
        read_states(reader, fitting.headline),
        answers=_by_id(files["answers"], ANSWERS_NEEDED),
        asked=_by_id(files["asked"]),
        samples=_by_id(files["samples"]) if files.get("samples") else None,
        reweighted=read_reweighted(files["reweighted"]),
        answer_scores=answer_scores,
    )
    return reader, reading


def _by_id(paths: Sequence[Path | str], columns: list[str] | None = None) -> dict[str, dict]:
    """The rows of some tables by their id."""
    return {row["id"]: row for path in paths for row in read_frame(path, columns).to_dicts()}


def joined(readings: Sequence[Reading]) -> Reading:
    """The examples of several datasets after each other.

    Those that share a question or a subject are one cluster, whose fold and half are those of its first example.
    """

    def lists(name: str) -> list:
        return [one for reading in readings for one in getattr(reading, name)]

    def arrays(name: str) -> np.ndarray:
        return np.concatenate([getattr(reading, name) for reading in readings])

    clusters = joint_clusters(lists("questions"), lists("clusters"))
    places: dict[str, int] = {}
    first = [places.setdefault(cluster, number) for number, cluster in enumerate(clusters)]
    return Reading(
        ids=lists("ids"),
        clusters=clusters,
        hallucinated=arrays("hallucinated"),
        folds=arrays("folds")[first],
        halves=arrays("halves")[first],
        questions=lists("questions"),
        answers=lists("answers"),
        lengths=arrays("lengths"),
        outputs={name: np.concatenate([one.outputs[name] for one in readings]) for name in readings[0].outputs},
        states={run: torch.cat([one.states[run] for one in readings]) for run in PASSES},
        reweighted=Reweighted(
            lists("ids"),
            torch.cat([one.reweighted.question_last for one in readings]),
            {key: torch.cat([one.reweighted.states[key] for one in readings]) for key in SHIFTS},
        ),
    )
