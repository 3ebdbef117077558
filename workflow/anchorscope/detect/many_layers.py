"""Plain probes of all layers, and the methods that choose among them or put them together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from anchorscope.detect.fitted import WORSE, Fitted, fit_trainings, inner_logits, probes_of
from anchorscope.detect.names import BEST_LAYER, MEAN_LOGIT, PROBE, STACKED, layer_read
from anchorscope.detect.trainings import Trainings
from anchorscope.extract.axes import Pass
from anchorscope.probe.delta import StateReader, States, in_chunks
from anchorscope.probe.logistic import log_loss

CLEAN: Pass = ("first", "clean")


@dataclass(frozen=True)
class LayerProbes:
    """The plain probe of each layer and training set."""

    plain: Fitted
    inner: Tensor  # [layers, trainings, examples]: logits out of inner fold; 0 outside the training set

    def cpu(self) -> "LayerProbes":
        """In the machine's own memory."""
        plain = self.plain
        return LayerProbes(Fitted(plain.logits.cpu(), plain.strengths.cpu(), plain.losses.cpu()), self.inner.cpu())


def probe_layers(clean: Tensor, labels: Tensor, trainings: Trainings) -> LayerProbes:
    """From clean states of some layers, [layers, examples, width]."""
    plain = fit_trainings(clean, labels, trainings)
    (inner,) = inner_logits(clean, labels, trainings, strengths=plain.strengths)
    return LayerProbes(plain, inner)


def probe_layers_at(clean: Tensor, labels: Tensor, trainings: Trainings, strengths: Tensor) -> LayerProbes:
    """The same with given strengths, [trainings], for all layers: to choose one for each layer takes most of the time.

    Losses are those of all inner folds.
    """
    each = strengths.to(clean).expand(len(clean), -1)
    logits = probes_of(clean, labels, trainings.train, each).logits(clean)
    (inner,) = inner_logits(clean, labels, trainings, strengths=each)
    return LayerProbes(Fitted(logits, each, log_loss(inner, labels, trainings.train)), inner)


def probe_files(reader: StateReader, probe: Callable[[Tensor], list[LayerProbes]], on_card: bool) -> list[LayerProbes]:
    """What `probe` makes of clean states [layers, examples, width], read and fitted a few layers at a time."""

    def probe_on(device: torch.device, states: States, *_: object) -> list[LayerProbes]:
        return [probes.cpu() for probes in probe(states[CLEAN].to(device).float())]

    chunks = in_chunks(reader, [CLEAN], on_card, probe_on)
    return [joined(parts) for parts in zip(*(found for *_, found in chunks), strict=True)]


def joined(parts: Sequence[LayerProbes]) -> LayerProbes:
    """The layers of one part after those of the other."""
    plain = (part.plain for part in parts)
    fitted = zip(*((one.logits, one.strengths, one.losses) for one in plain), strict=True)
    return LayerProbes(Fitted(*map(torch.cat, fitted)), torch.cat([part.inner for part in parts]))


def at_layer_read(probes: LayerProbes) -> Fitted:
    """The plain probes of the layer that methods of one layer read."""
    layer = layer_read(len(probes.inner))
    some, plain = slice(layer, layer + 1), probes.plain
    return Fitted(plain.logits[some], plain.strengths[some], plain.losses[some])


def read_layers(probes: LayerProbes, labels: Tensor, trainings: Trainings) -> dict[str, Tensor]:
    """The logits [trainings, examples] of the plain probe, and of the methods that read all layers."""
    logits = probes.plain.logits
    best = probes.plain.losses.argmin(0)  # [trainings]
    return {
        PROBE: at_layer_read(probes).logits[0],
        BEST_LAYER: logits[best, torch.arange(len(trainings))],
        MEAN_LOGIT: logits.mean(0),
        STACKED: stacked(probes, labels, trainings),
    }


def stacked(probes: LayerProbes, labels: Tensor, trainings: Trainings) -> Tensor:
    """Logits [trainings, examples] of a regression on all layers' logits.

    It learns from logits out of inner fold, and reads the plain probes' about everyone else.
    """
    seen = torch.where(trainings.train, probes.inner, probes.plain.logits)  # [layers, trainings, examples]
    found = [
        fit_trainings(seen[:, number].T[None], labels, trainings.one(number), WORSE) for number in range(len(trainings))
    ]
    return torch.stack([one.logits[0, 0] for one in found])
