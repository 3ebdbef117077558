"""What the methods read of the examples of one model, on one dataset or on several after each other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from anchorscope.detect.gates import read_gate_states
from anchorscope.detect.methods import METHODS
from anchorscope.detect.reweighting import SHIFTS, Reweighted, read_reweighted
from anchorscope.extract.axes import EXACT, Pass
from anchorscope.extract.store import ActivationReader, open_activations
from anchorscope.files.frames import read_frame
from anchorscope.probe.examples import Examples, enough, examples_of
from anchorscope.probe.fitting import Fitting
from anchorscope.probe.pooled import joint_clusters
from anchorscope.text.normal_words import bare_words

MethodScores = dict[str, np.ndarray]  # by method: [examples]
NEEDED = {
    "answers": ["id", "question", "answer", "answer_final", "logprobs", "entropies"],
    "asked": None,
    "samples": None,
}
# By kind: activations, answers, asked, reweighted, and samples if drawn.
DetectionFiles = Mapping[str, Sequence[Path | str]]


def output_scores(rows: Sequence[Mapping], answer_scores: bool) -> MethodScores:
    """What the model's own output says about each answer: the scores that nothing has to learn.

    With `answer_scores`, they are also there without the stop token; those of samples where rows have samples.
    """
    there: dict[str | None, bool] = {None: True, "answer_scores": answer_scores, "samples": "samples" in rows[0]}
    texts = [[row["answer"], *row.get("samples", ())] for row in rows]
    seen = [
        {**row, "texts": [" ".join(bare_words(text)) for text in mine]} for row, mine in zip(rows, texts, strict=True)
    ]
    return {
        name: np.array([method.score(row) for row in seen], float)
        for name, method in METHODS.items()
        if not method.learns and there[method.needs]
    }


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
    outputs: MethodScores  # of the methods that learn nothing
    states: dict[Pass, Tensor]  # at the layer that is read, [examples, width]
    reweighted: Reweighted

    @property
    def labels(self) -> Tensor:
        """1 for hallucinated, [examples]."""
        return torch.from_numpy(self.hallucinated).float()


def reading_of(
    examples: Examples,
    states: dict[Pass, Tensor],
    rows: Mapping[str, Mapping],
    reweighted: Reweighted,
    answer_scores: bool,
) -> Reading:
    """Put together what is known about some examples; rows are given by id.

    With `answer_scores`, output scores are also there without the stop token.
    """
    if reweighted.ids != examples.ids:
        raise ValueError("The reweighted states are of other examples than the activations; make them again.")
    mine = [rows[name] for name in examples.ids]
    return Reading(
        ids=examples.ids,
        clusters=examples.clusters,
        hallucinated=examples.hallucinated,
        folds=examples.splits[0].folds,
        halves=examples.splits[0].halves,
        questions=[row["question"] for row in mine],
        answers=[row["answer"] for row in mine],
        lengths=np.array([row["answer_final"] + 1.0 for row in mine]),
        outputs=output_scores(mine, answer_scores),
        states=states,
        reweighted=reweighted,
    )


def read_files(
    files: DetectionFiles, where: str, answer_scores: bool, fitting: Fitting
) -> tuple[ActivationReader, Reading]:
    """The same from the files of all shards of a dataset, and the reader of all its layers."""
    reader = open_activations(files["activations"], fitting.headline.grid(), [EXACT])
    examples = enough(examples_of(reader.keys, folds=fitting.folds, repeats=1, seed=fitting.seed, where=where))
    rows: dict[str, dict] = {}
    for kind, columns in NEEDED.items():
        for path in files.get(kind, ()):
            for row in read_frame(path, columns).to_dicts():
                rows.setdefault(row["id"], {}).update(row)
    states, reweighted = read_gate_states(reader, fitting.headline), read_reweighted(files["reweighted"])
    return reader, reading_of(examples, states, rows, reweighted, answer_scores)


def join_readings(readings: Sequence[Reading]) -> Reading:
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
        states={run: torch.cat([one.states[run] for one in readings]) for run in readings[0].states},
        reweighted=Reweighted(
            lists("ids"),
            torch.cat([one.reweighted.question_last for one in readings]),
            {key: torch.cat([one.reweighted.states[key] for one in readings]) for key in SHIFTS},
        ),
    )
