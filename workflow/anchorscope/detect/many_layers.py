"""Plain probes of all layers, and the methods that choose among them or put them together."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from anchorscope.detect.names import BEST_LAYER, MEAN_LOGIT, PROBE, STACKED, layer_read
from anchorscope.extract.axes import Pass
from anchorscope.probe.delta import StateReader, States, in_chunks
from anchorscope.probe.logistic import log_loss
from anchorscope.probe.scores import each, joined
from anchorscope.probe.strengths import Fitted, Trainings, inner_logits, probes_of, read

CLEAN: Pass = ("first", "clean")


@dataclass(frozen=True)
class LayerProbes:
    """The plain probe of each layer and training set."""

    logits: Tensor  # [layers, trainings, examples], of everyone
    strengths: Tensor  # [layers, trainings]
    losses: Tensor  # [layers, trainings]: of the strength, on inner folds
    inner: Tensor  # [layers, trainings, examples]: logits out of inner fold; 0 outside the training set

    def at_layer_read(self) -> "LayerProbes":
        """Those of the layer that methods of one layer read."""
        layer = layer_read(len(self.inner))
        return each(self, lambda tensor: tensor[layer : layer + 1])


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
        PROBE: probes.at_layer_read().logits[0],
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
