"""SAPLMA: a network of 256, 128 and 64 units on the state of one layer, as published: five epochs of Adam.

The networks of all training sets are trained together, as one batch of matrices. Their parameters never meet, so each
is what it would be alone.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import softplus
from torch.nn.utils.rnn import pad_sequence

from anchorscope.probe.logistic import class_weights

UNITS = (256, 128, 64)
EPOCHS, BATCH = 5, 32
LEARNING_RATE = 1e-3
DECAYS, SMALLEST = (0.9, 0.999), 1e-8  # Adam's own: of the means of slopes and of their squares; added to a root
LEAST_SPREAD = 1e-6  # relative to the mean; a feature that varies less is constant

Layer = tuple[Tensor, Tensor]  # weights [networks, inputs, outputs] and biases [networks, 1, outputs]


def read_network(states: Tensor, labels: Tensor, train: Tensor, seed: int) -> Tensor:
    """Logits [trainings, examples] of networks that learn from `train` [trainings, examples], bool.

    `states` are [examples, width]; each network reads them as standardised on its own training set.
    """
    inputs = torch.stack([standardised(states, inside) for inside in train])  # [trainings, examples, width]
    layers = first_layers(len(train), states.shape[1], seed)
    parameters = [one.requires_grad_() for layer in layers for one in layer]
    adam = Adam(parameters)
    weights = class_weights(labels, train) * train.sum(1, keepdim=True)  # one on average
    rows = torch.arange(len(train))[:, None]
    for batch in batches(train, seed):
        there = batch >= 0
        seen = batch.clamp(min=0)
        logits, signs = forward(layers, inputs[rows, seen]), 1 - 2 * labels[seen]
        loss = weights[rows, seen] * there * softplus(signs * logits)
        adam.step(torch.autograd.grad((loss.sum(1) / there.sum(1)).sum(), parameters))
    with torch.no_grad():
        return forward(layers, inputs)


class Adam:
    """Steps of Adam. The first step of torch's own takes longer than to train all networks: it imports a compiler."""

    def __init__(self, parameters: list[Tensor]):
        self.parameters = parameters
        self.means, self.squares = ([torch.zeros_like(one) for one in parameters] for _ in range(2))
        self.steps = 0

    @torch.no_grad()
    def step(self, slopes: Sequence[Tensor]) -> None:
        """Move the parameters against their slopes."""
        self.steps += 1
        (of_means, of_squares), count = DECAYS, self.steps
        for parameter, slope, mean, square in zip(self.parameters, slopes, self.means, self.squares, strict=True):
            mean.lerp_(slope, 1 - of_means)
            square.mul_(of_squares).addcmul_(slope, slope, value=1 - of_squares)
            spread = square.sqrt() / (1 - of_squares**count) ** 0.5 + SMALLEST
            parameter.addcdiv_(mean, spread, value=-LEARNING_RATE / (1 - of_means**count))


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
    """What the networks see in each step, [trainings, examples of a batch]; -1 where a batch has fewer examples.

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
