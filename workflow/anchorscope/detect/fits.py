"""What every method says about everyone, having learnt from some training sets only.

Some read plain probes of all layers, and choose among them or put them together. SAPLMA is a network of 256, 128 and
64 units on the state of one layer, as published: five epochs of Adam.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import compress, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus
from torch.nn.utils.rnn import pad_sequence
from torch.optim.adam import adam

from anchorscope.detect.gates import FEWEST_LEARNT, find_groups, read_gate
from anchorscope.detect.methods import METHODS
from anchorscope.detect.reading import Reading
from anchorscope.detect.reweighting import GATES, PUBLISHED, SHIFTS, layer_read
from anchorscope.extract.axes import CLEAN
from anchorscope.probe.delta import StateReader, States, in_chunks
from anchorscope.probe.logistic import Marks, class_weights, fit, log_loss
from anchorscope.probe.readers import presence
from anchorscope.probe.scores import each, join_layers
from anchorscope.probe.strengths import (
    GROUPS,
    NOT_BETTER,
    STRENGTHS,
    Fitted,
    TrainingSets,
    inner_logits,
    inner_losses,
    least,
    probes_of,
    read,
)

PENALTY = STRENGTHS[-1]  # of Platt's regression: next to nothing, but scores that separate classes have a best slope
MEMBERS = 3  # of the ensemble: as many probes as the gate and the two experts
UNITS = (256, 128, 64)
EPOCHS, BATCH = 5, 32
ADAM: dict[str, Any] = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0}
ADAM |= {"amsgrad": False, "maximize": False, "foreach": False}
LEAST_SPREAD = 1e-6  # relative to the mean; a feature that varies less is constant

Layer = tuple[Tensor, Tensor]  # weights [networks, inputs, outputs] and biases [networks, 1, outputs]


@dataclass(frozen=True)
class LayerProbes:
    """The plain probe of each layer and training set."""

    logits: Tensor  # [layers, training sets, examples], of everyone
    strengths: Tensor  # [layers, training sets]
    losses: Tensor  # [layers, training sets]: of the strength, on inner folds
    inner: Tensor  # [layers, training sets, examples]: logits out of inner fold; 0 outside the training set


def probe_layers(clean: Tensor, labels: Tensor, training_sets: TrainingSets, plain: Fitted) -> LayerProbes:
    """From clean states of some layers, [layers, examples, width], and their probes, which learnt from them."""
    (inner,) = inner_logits(clean, labels, training_sets, strengths=plain.strengths)
    return LayerProbes(plain.probes.logits(clean), plain.strengths, plain.losses, inner)


def probe_layers_at(clean: Tensor, labels: Tensor, training_sets: TrainingSets, strengths: Tensor) -> LayerProbes:
    """The same with strengths, [training sets], given for all layers: to choose one for each takes most of the time.

    Losses are those of all inner folds.
    """
    same = strengths.to(clean).expand(len(clean), -1)
    logits = probes_of(clean, labels, training_sets.train, same).logits(clean)
    (inner,) = inner_logits(clean, labels, training_sets, strengths=same)
    return LayerProbes(logits, same, log_loss(inner, labels, training_sets.train), inner)


def probe_files(
    reader: StateReader, probe: Callable[[Tensor, slice], list[LayerProbes]], on_gpu: bool
) -> list[LayerProbes]:
    """What `probe` makes of clean states [layers, examples, width] of some layers, read a few layers at a time."""

    def probe_on(device: torch.device, states: States, _: object, layers: range) -> list[LayerProbes]:
        return each(probe(states[CLEAN].to(device).float(), slice(layers.start, layers.stop)), Tensor.cpu)

    return join_layers([found for *_, found in in_chunks(reader, [CLEAN], on_gpu, probe_on)])


@dataclass(frozen=True)
class Told:
    """What one method says about everyone, by training set: [training sets, examples]."""

    scores: Tensor  # higher means hallucinated
    chances: Tensor  # P(hallucinated), both classes weighing the same


@dataclass(frozen=True)
class Fits:
    """What the methods are made of. Where several share a fit, it is made once, and only if one of them is asked."""

    reading: Reading
    probes: LayerProbes
    training_sets: TrainingSets
    together: np.ndarray  # [examples]: who is scored together with whom
    seed: int
    strengths: Sequence[float] = STRENGTHS  # among which Pathway Reweighting chooses

    @property
    def clean(self) -> Tensor:
        """States [1, examples, width] of the layer that is read."""
        return self.reading.states[CLEAN][None]

    @property
    def plain(self) -> LayerProbes:
        """The probes of that layer."""
        return each(self.probes, lambda tensor: tensor[layer_read(len(tensor))])

    def words(self, *names: str) -> Marks:
        """Which words of the training sets the texts of these names have."""
        learnt, texts = self.training_sets.train.any(0).numpy(), [getattr(self.reading, name) for name in names]
        return reduce(Marks.beside, [presence(some, list(compress(some, learnt))) for some in texts])

    def of_logits(self, logits: Tensor) -> Told:
        return Told(logits.double(), logits.double().sigmoid())

    def read(self, features: np.ndarray | Tensor | Marks) -> Told:
        """By a probe of features [examples, width]."""
        seen = features if isinstance(features, Marks) else torch.as_tensor(features)[None]
        return self.of_logits(read(seen, self.reading.labels.to(seen.dtype), self.training_sets)[0])

    def output(self, values: np.ndarray) -> Told:
        """By scores [examples] that nothing learnt; only their probabilities are fitted, to each training set."""
        scores = torch.from_numpy(values).double().expand(len(self.training_sets), -1)
        return Told(scores, platt(scores, scores, self.reading.labels, self.training_sets.train))

    def best_layer(self) -> Told:
        """By the layer whose probe is best on inner folds."""
        return self.of_logits(self.probes.logits[self.probes.losses.argmin(0), torch.arange(len(self.training_sets))])

    def stacked(self) -> Told:
        """By a regression on all layers' logits.

        It learns from logits out of inner fold, and reads the plain probes' about everyone else.
        """
        # [layers, training sets, examples]
        seen = torch.where(self.training_sets.train, self.probes.inner, self.probes.logits)
        found = [
            read(seen[:, number].T[None], self.reading.labels, self.training_sets.one(number))[0, 0]
            for number in range(len(self.training_sets))
        ]
        return self.of_logits(torch.stack(found))

    def mean_difference(self) -> Told:
        """By how far states lie along the line between the classes' means, from its middle.

        P learns from where inner folds put the examples that they leave out.
        """
        states = self.clean[0].double()

        def along(train: Tensor) -> Tensor:
            wrong, right = (states[train & (self.reading.labels == label)].mean(0) for label in (1, 0))
            return (states - (wrong + right) / 2) @ (wrong - right)

        known = torch.zeros_like(self.training_sets.train, dtype=states.dtype)
        for number, train, held_out in self.training_sets.nested():
            known[number, held_out] = along(train)[held_out]
        scores = torch.stack([along(train) for train in self.training_sets.train])
        return Told(scores, platt(known, scores, self.reading.labels, self.training_sets.train))

    def network(self) -> Told:
        return self.of_logits(read_network(self.clean[0], self.reading.labels, self.training_sets.train, self.seed))

    @cached_property
    def _groups(self) -> tuple[dict[str, Tensor], Tensor]:
        return find_groups(self.reading.states, self.reading.labels, self.training_sets, self.plain.strengths)

    @cached_property
    def _gates(self) -> dict[str, Tensor]:
        """P(Question-Anchored) by gate: [training sets, examples]."""
        anchored, inner = self._groups
        gates = {name: read_gate(self.clean, anchored[name], self.training_sets) for name in GATES}
        logit = torch.where(self.training_sets.train, inner, self.plain.logits)
        seen = torch.stack([logit, logit.abs()], dim=2)
        return gates | {
            "logit": read_gate(seen, anchored[PUBLISHED], self.training_sets),
            "random": permuted(gates[PUBLISHED], torch.from_numpy(self.together), self.seed),
        }

    @cached_property
    def _experts(self) -> dict[str, Tensor]:
        """P of the probe of either part, by how the training sets are split in two: [2, training sets, examples].

        A part with too few of a class is replaced by the whole training set.
        """
        halves = torch.from_numpy(self.reading.halves == 0).expand(len(self.training_sets), -1)
        groups, wrong = {**self._groups[0], "random": halves}, self.reading.labels.bool()
        # [2 for each of the groups, training sets, examples]
        parts = self.training_sets.train & torch.stack([part for group in groups.values() for part in (group, ~group)])
        enough = ((parts & wrong).sum(2) >= FEWEST_LEARNT) & ((parts & ~wrong).sum(2) >= FEWEST_LEARNT)
        train = torch.where(enough[..., None], parts, self.training_sets.train).flatten(0, 1)
        chances = self._chances(train).unflatten(0, (len(groups), 2, len(self.training_sets)))
        return dict(zip(groups, chances, strict=True))

    def _chances(self, train: Tensor) -> Tensor:
        """P by probes of parts of the training sets, [parts, examples], with the strengths of the plain probes."""
        strengths = self.plain.strengths.repeat(len(train) // len(self.training_sets))[None]
        return probes_of(self.clean, self.reading.labels, train, strengths).logits(self.clean)[0].sigmoid()

    def mixture(self, gate: str, experts: str) -> Told:
        """By P of two experts, weighted by a gate."""
        share, (question, answer) = self._gates[gate], self._experts[experts]
        chances = (share * question + (1 - share) * answer).double()
        return Told(chances, chances)

    def ensemble(self) -> Told:
        """By the mean P of probes that each learn from a resample of the training set's clusters."""
        labels = self.reading.labels.numpy()
        counts = [
            resampled(inside.numpy(), labels, self.reading.clusters, np.random.default_rng([self.seed, member]))
            for member in range(MEMBERS)
            for inside in self.training_sets.train
        ]
        chances = self._chances(torch.from_numpy(np.stack(counts))).unflatten(0, (MEMBERS, -1)).mean(0).double()
        return Told(chances, chances)

    @cached_property
    def _losses(self) -> tuple[Tensor, Tensor]:
        """Of clean and reweighted states: the least loss on inner folds, and its strength; [states, training sets]."""
        groups = [group for some in GROUPS if (group := [one for one in some if one in self.strengths])]
        losses = inner_losses(self._reweighted, self.reading.labels, self.training_sets, NOT_BETTER, groups)
        return losses.amin(0), least(losses, [one for group in groups for one in group])

    @cached_property
    def _reweighted(self) -> Tensor:
        """The clean states, and those of every shift: [1 + shifts, examples, width]."""
        return torch.cat([self.clean, torch.stack([self.reading.reweighted.states[key] for key in SHIFTS])])

    def reweighted(self, gate: str) -> Told:
        """By a probe of the states that suit inner folds best: amount and strength are chosen together."""
        best, strengths = self._losses
        among = torch.tensor([0, *(1 + place for place, key in enumerate(SHIFTS) if key[0] == gate)])
        amounts = among[best[among].argmin(0)]  # [training sets]
        logits = torch.empty(self.training_sets.train.shape)
        for amount in amounts.unique().tolist():
            mine, seen = amounts == amount, self._reweighted[amount : amount + 1]
            train, how = self.training_sets.train[mine], strengths[amount : amount + 1, mine]
            logits[mine] = probes_of(seen, self.reading.labels, train, how).logits(seen)[0]
        return self.of_logits(logits)


def permuted(values: Tensor, together: Tensor, seed: int) -> Tensor:
    """The values [training sets, examples] in a seeded order among the examples that are scored together."""
    random, places = np.random.default_rng(seed), torch.arange(values.shape[1])
    for number in together.unique():
        members = (together == number).nonzero()[:, 0]
        places[members] = members[torch.from_numpy(random.permutation(len(members)))]
    return values[:, places]


def resampled(
    inside: np.ndarray, labels: np.ndarray, clusters: Sequence[str], random: np.random.Generator
) -> np.ndarray:
    """How often a draw of clusters with replacement has each example, [examples]; both classes are in it."""
    names, cluster_of = np.unique(np.array(clusters)[inside], return_inverse=True)
    counts = np.zeros(len(inside), np.int64)
    while True:
        drawn = np.bincount(random.integers(0, len(names), len(names)), minlength=len(names))
        counts[inside] = drawn[cluster_of]
        if len(np.unique(labels[counts > 0])) == 2:
            return counts


def every_method(fits: Fits) -> dict[str, Told]:
    """All methods that the readings have something for, in the order of the tables."""
    outputs = fits.reading.outputs
    return {
        name: method.score(fits) if method.learns else fits.output(outputs[name])
        for name, method in METHODS.items()
        if method.learns or name in outputs
    }


def platt(known: Tensor, scores: Tensor, labels: Tensor, train: Tensor) -> Tensor:
    """P(hallucinated) of scores [training sets, examples] that are no probabilities: by Platt's regression.

    It learns from the `known` scores of each training set, which have the same shape. Of a method that learns, they are
    those of examples that it had not seen. Both classes weigh the same, as for every probe.
    """
    strengths = torch.full((len(train), len(train)), PENALTY)
    fitted = fit(features=known.double()[..., None], labels=labels, train=train, strengths=strengths)
    slope, level = (part.diagonal(dim1=0, dim2=1) for part in (fitted.weight[..., 0], fitted.bias))
    return (slope[:, None] * scores + level[:, None]).sigmoid()


def read_network(states: Tensor, labels: Tensor, train: Tensor, seed: int) -> Tensor:
    """Logits [training sets, examples] of networks that learn from `train` [training sets, examples], bool.

    `states` are [examples, width]; each network reads them as standardised on its own training set. All are trained
    together, as one batch of matrices: their parameters never meet, so each is what it would be alone.
    """
    inputs = torch.stack([standardised(states, inside) for inside in train])  # [training sets, examples, width]
    layers = first_layers(len(train), states.shape[1], seed)
    parameters = [one.requires_grad_() for layer in layers for one in layer]
    means, squares = ([torch.zeros_like(one) for one in parameters] for _ in range(2))
    steps = [torch.zeros(()) for _ in parameters]
    weights = class_weights(labels, train) * train.sum(1, keepdim=True)  # one on average
    rows = torch.arange(len(train))[:, None]
    for batch in batches(train, seed):
        there = batch >= 0
        seen = batch.clamp(min=0)
        logits, signs = forward(layers, inputs[rows, seen]), 1 - 2 * labels[seen]
        loss = weights[rows, seen] * there * softplus(signs * logits)
        slopes = list(torch.autograd.grad((loss.sum(1) / there.sum(1)).sum(), parameters))
        # The first step of the class of the same name takes longer than to train all networks: it imports a compiler.
        with torch.no_grad():
            adam(parameters, slopes, means, squares, [], steps, **ADAM)
    with torch.no_grad():
        return forward(layers, inputs)


def standardised(states: Tensor, inside: Tensor) -> Tensor:
    """States less their mean, in units of their spread, over the examples `inside`; 0 where they do not vary."""
    mean, spread = states[inside].mean(0), states[inside].std(0, correction=0)
    return (states - mean) * torch.where(spread > LEAST_SPREAD * mean.abs(), 1 / spread, 0.0)


def first_layers(networks: int, width: int, seed: int) -> list[Layer]:
    """Every network begins with the same weights, drawn evenly within one over the root of a layer's inputs."""
    random, sizes = torch.Generator().manual_seed(seed), (width, *UNITS, 1)
    layers = []
    for inputs, outputs in pairwise(sizes):
        drawn = (2 * torch.rand(inputs + 1, outputs, generator=random) - 1) / inputs**0.5
        layers.append((drawn[:-1].repeat(networks, 1, 1), drawn[-1:].repeat(networks, 1, 1)))
    return layers


def forward(layers: list[Layer], inputs: Tensor) -> Tensor:
    """Logits [networks, examples] of inputs [networks, examples, width]."""
    for number, (weights, biases) in enumerate(layers):
        inputs = torch.baddbmm(biases, inputs if number == 0 else inputs.relu(), weights)
    return inputs[..., 0]


def batches(train: Tensor, seed: int) -> Iterator[Tensor]:
    """What the networks see in each step, [training sets, examples of a batch]; -1 where a batch has fewer examples.

    Each training set is put into a seeded order in every epoch, and divided evenly into as many batches as the largest
    one needs. So all networks take the same steps.
    """
    random = torch.Generator().manual_seed(seed)
    members = [inside.nonzero()[:, 0] for inside in train]
    count = -(-max(map(len, members)) // BATCH)
    for _ in range(EPOCHS):
        orders = [own[torch.randperm(len(own), generator=random)].tensor_split(count) for own in members]
        for together in zip(*orders, strict=True):
            yield pad_sequence(list(together), batch_first=True, padding_value=-1)
