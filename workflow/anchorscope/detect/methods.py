"""Every method: what it says about everyone, having learnt from some training sets only.

Some read plain probes of all layers, and choose among them or put them together.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from anchorscope.detect.names import (
    ANSWER_LENGTH,
    ANSWER_WORDS,
    BEST_LAYER,
    BOTH_WORDS,
    GATES,
    MEAN_DIFFERENCE,
    MEAN_LOGIT,
    METHODS,
    PR,
    PR_HONEST,
    PROBE,
    QUESTION_PROBE,
    QUESTION_WORDS,
    SAPLMA,
    SHIFTS,
    STACKED,
    layer_read,
)
from anchorscope.detect.network import read_network
from anchorscope.detect.pathways import read_ensemble, read_mixtures, read_reweighted
from anchorscope.detect.reading import Reading
from anchorscope.extract.axes import Pass
from anchorscope.probe.delta import StateReader, States, in_chunks
from anchorscope.probe.logistic import fit, log_loss
from anchorscope.probe.readers import presence
from anchorscope.probe.scores import each, joined
from anchorscope.probe.strengths import STRENGTHS, Fitted, Trainings, inner_logits, probes_of, read

CLEAN: Pass = ("first", "clean")
PENALTY = STRENGTHS[-1]  # of Platt's regression: next to nothing, but scores that separate classes have a best slope


@dataclass(frozen=True)
class LayerProbes:
    """The plain probe of each layer and training set."""

    logits: Tensor  # [layers, trainings, examples], of everyone
    strengths: Tensor  # [layers, trainings]
    losses: Tensor  # [layers, trainings]: of the strength, on inner folds
    inner: Tensor  # [layers, trainings, examples]: logits out of inner fold; 0 outside the training set


def probe_layers(clean: Tensor, labels: Tensor, trainings: Trainings, plain: Fitted) -> LayerProbes:
    """From clean states of some layers, [layers, examples, width], and their probes, which learnt from them."""
    (inner,) = inner_logits(clean, labels, trainings, strengths=plain.strengths)
    return LayerProbes(plain.probes.logits(clean), plain.strengths, plain.losses, inner)


def probe_layers_at(clean: Tensor, labels: Tensor, trainings: Trainings, strengths: Tensor) -> LayerProbes:
    """The same with given strengths, [trainings], for all layers: to choose one for each layer takes most of the time.

    Losses are those of all inner folds.
    """
    same = strengths.to(clean).expand(len(clean), -1)
    logits = probes_of(clean, labels, trainings.train, same).logits(clean)
    (inner,) = inner_logits(clean, labels, trainings, strengths=same)
    return LayerProbes(logits, same, log_loss(inner, labels, trainings.train), inner)


def probe_files(
    reader: StateReader, probe: Callable[[Tensor, slice], list[LayerProbes]], on_card: bool
) -> list[LayerProbes]:
    """What `probe` makes of clean states [layers, examples, width] of some layers, read a few layers at a time."""

    def probe_on(device: torch.device, states: States, _: object, layers: range) -> list[LayerProbes]:
        return each(probe(states[CLEAN].to(device).float(), slice(layers.start, layers.stop)), Tensor.cpu)

    return joined([found for *_, found in in_chunks(reader, [CLEAN], on_card, probe_on)])


def read_layers(probes: LayerProbes, labels: Tensor, trainings: Trainings) -> dict[str, Tensor]:
    """The logits [trainings, examples] of the plain probe, and of the methods that read all layers."""
    best = probes.losses.argmin(0)  # [trainings]
    return {
        PROBE: probes.logits[layer_read(len(probes.logits))],
        BEST_LAYER: probes.logits[best, torch.arange(len(trainings))],
        MEAN_LOGIT: probes.logits.mean(0),
        STACKED: stacked(probes, labels, trainings),
    }


def stacked(probes: LayerProbes, labels: Tensor, trainings: Trainings) -> Tensor:
    """Logits [trainings, examples] of a regression on all layers' logits.

    It learns from logits out of inner fold, and reads the plain probes' about everyone else.
    """
    seen = torch.where(trainings.train, probes.inner, probes.logits)  # [layers, trainings, examples]
    found = [read(seen[:, number].T[None], labels, trainings.one(number))[0, 0] for number in range(len(trainings))]
    return torch.stack(found)


@dataclass(frozen=True)
class Said:
    """What one method says about everyone, by training set: [trainings, examples]."""

    scores: Tensor  # higher means hallucinated
    chances: Tensor  # P(hallucinated), both classes weighing the same


def every_method(
    reading: Reading,
    probes: LayerProbes,
    trainings: Trainings,
    together: np.ndarray,
    seed: int,
    strengths: Sequence[float] = STRENGTHS,
) -> dict[str, Said]:
    """All methods, in the order of the tables. `together` [examples] says who is scored together with whom.

    Pathway Reweighting chooses among `strengths`.
    """
    labels = reading.labels
    clean, layer = reading.states[CLEAN], layer_read(len(probes.logits))
    logits = read_layers(probes, labels, trainings)
    logits |= read_texts(reading, trainings) | read_pathway_reweighting(reading, trainings, strengths)
    logits[QUESTION_PROBE] = read(reading.reweighted.question_last[None], labels, trainings)[0]
    logits[SAPLMA] = read_network(clean, labels, trainings.train, seed)
    chances = read_mixtures(
        reading.states,
        labels,
        trainings,
        strengths=probes.strengths[layer],
        logits=probes.logits[layer],
        halves=torch.from_numpy(reading.halves),
        together=torch.from_numpy(together),
        seed=seed,
    )
    chances |= read_ensemble(
        clean, labels, reading.clusters, trainings=trainings, strengths=probes.strengths[layer], seed=seed
    )
    said = {name: Said(some.double(), some.double().sigmoid()) for name, some in logits.items()}
    said |= {name: Said(some.double(), some.double()) for name, some in chances.items()}
    said |= read_outputs(reading, trainings)
    known, scores = mean_difference(clean, labels, trainings)
    said[MEAN_DIFFERENCE] = Said(scores, platt(known, scores, labels, trainings.train))
    return {name: said[name] for name in METHODS if name in said}


def read_texts(reading: Reading, trainings: Trainings) -> dict[str, Tensor]:
    """The logits [trainings, examples] of the readers of words and of the answer's length."""
    learnt = trainings.train.any(0).numpy()

    def words(texts: Sequence[str]) -> np.ndarray:
        return presence(texts, [text for text, mine in zip(texts, learnt, strict=True) if mine])

    question, answer = words(reading.questions), words(reading.answers)
    seen = {
        ANSWER_LENGTH: reading.lengths[:, None],
        QUESTION_WORDS: question,
        ANSWER_WORDS: answer,
        BOTH_WORDS: np.hstack([question, answer]),
    }
    labels = reading.labels.double()
    return {name: read(torch.from_numpy(features)[None], labels, trainings)[0] for name, features in seen.items()}


def read_pathway_reweighting(reading: Reading, trainings: Trainings, strengths: Sequence[float]) -> dict[str, Tensor]:
    """The logits [trainings, examples] of Pathway Reweighting with either gate."""
    reweighted = [reading.reweighted.states[key] for key in SHIFTS]
    states = torch.stack([reading.states["first", "clean"], *reweighted])
    choices = [[0, *(1 + place for place, key in enumerate(SHIFTS) if key[0] == gate)] for gate in GATES]
    found = read_reweighted(states, reading.labels, trainings, choices=choices, strengths=strengths)
    return dict(zip((PR, PR_HONEST), found, strict=True))


def mean_difference(clean: Tensor, labels: Tensor, trainings: Trainings) -> tuple[Tensor, Tensor]:
    """How far states lie along the line between the classes' means, from its middle: [trainings, examples] twice.

    First by the means of inner folds, about the examples of the training set that those leave out; then by the means
    of the training sets, about everyone.
    """
    states = clean.double()
    numbers, train, held_out = map(list, zip(*trainings.nested(), strict=True))
    inner = torch.where(torch.stack(held_out), _along(states, labels, torch.stack(train)), 0.0)
    known = inner.new_zeros(trainings.train.shape).index_add_(0, torch.tensor(numbers), inner)
    return known, _along(states, labels, trainings.train)


def _along(states: Tensor, labels: Tensor, train: Tensor) -> Tensor:
    """For each of `train` [sets, examples], where states [examples, width] lie between its classes' means."""
    wrong, right = (
        torch.stack([states[inside & (labels == label)].mean(0) for inside in train]) for label in (1, 0)
    )  # [sets, width]
    direction = wrong - right
    return direction @ states.T - (direction * (wrong + right) / 2).sum(1, keepdim=True)


def read_outputs(reading: Reading, trainings: Trainings) -> dict[str, Said]:
    """The methods that learn nothing; only their probabilities are fitted, to each training set."""
    outputs = {
        name: torch.from_numpy(values).double().expand(len(trainings), -1) for name, values in reading.outputs.items()
    }
    return {name: Said(some, platt(some, some, reading.labels, trainings.train)) for name, some in outputs.items()}


def platt(known: Tensor, scores: Tensor, labels: Tensor, train: Tensor) -> Tensor:
    """P(hallucinated) of scores [trainings, examples] that are no probabilities: by Platt's regression.

    It learns from the `known` scores of each training set, which have the same shape. Of a method that learns, they are
    those of examples that it had not seen. Both classes weigh the same, as for every probe.
    """
    strengths = torch.full((len(train), len(train)), PENALTY)
    fitted = fit(features=known.double()[..., None], labels=labels, train=train, strengths=strengths)
    slope, level = (part.diagonal(dim1=0, dim2=1) for part in (fitted.weight[..., 0], fitted.bias))
    return (slope[:, None] * scores + level[:, None]).sigmoid()
