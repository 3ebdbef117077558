"""The probes of a detector: as in the probe stage, but of all datasets of a model together; so they are fitted here."""

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from anchorscope.probe.scores import each
from anchorscope.probe.strengths import VALIDATED, Fitted, cross_fitting, fit_trainings

# The search for a strength ends earlier than in the probe stage, which probes fewer examples: weak penalties of many
# examples are most of the work, and no loss that has once risen by so much was seen to fall below the best again.
CLEARLY_WORSE = 1.03


@dataclass(frozen=True)
class Trained:
    """One probe per layer: logit = (state - mean) / scale . weight + bias."""

    weight: Tensor  # [layers, width], of standardised states
    mean: Tensor  # [layers, width]
    scale: Tensor  # [layers, width]; 1 where the training states do not vary
    bias: Tensor  # [layers]
    strength: Tensor  # [layers], of the penalty
    inner_loss: Tensor  # [layers], log loss on folds inside the training data

    @property
    def best_layer(self) -> int:
        """The layer with the least loss on inner folds."""
        return int(self.inner_loss.argmin())

    def logits(self, states: Tensor) -> Tensor:
        """Logits of "hallucinated" [layers, examples] of states [layers, examples, width]."""
        standardised = (states.to(self.weight.dtype) - self.mean[:, None]) / self.scale[:, None]
        return torch.baddbmm(self.bias[:, None, None], standardised, self.weight[..., None]).squeeze(-1)

    def layers(self, some: slice) -> "Trained":
        """Some of the layers."""
        return each(self, lambda tensor: tensor[some])

    def to(self, device: torch.device) -> "Trained":
        return each(self, lambda tensor: tensor.to(device))

    def tensors(self) -> dict[str, Tensor]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


def train(states: Tensor, hallucinated: Tensor, folds: Tensor) -> list[Trained]:
    """Probes of all layers that saw every example but those of one fold, for each fold; behind them, of all examples.

    From states [layers, examples, width]; the others are [examples]. Strengths are chosen as the probe stage chooses
    them. So probes without a fold are those that score it there, but for rounding: these are fitted in double
    precision, because in single precision P hangs in its fifth decimal on what else is fitted at the same time.
    """
    clean, trainings = states.float(), cross_fitting(folds).with_everyone()
    fitted = fit_trainings(clean, hallucinated.float(), trainings, CLEARLY_WORSE, dtype=torch.float64)
    return [_standardised(fitted, number, clean[:, who].double()) for number, who in enumerate(trainings.train)]


def _standardised(fitted: Fitted, number: int, seen: Tensor) -> Trained:
    """One of the fitted probes of each layer in units of the states that it saw, [layers, examples, width]."""
    variance, mean = torch.var_mean(seen, dim=1, correction=0)
    scale = torch.where(variance > 0, variance.sqrt(), 1.0)
    weight, bias = fitted.probes.weight[:, number], fitted.probes.bias[:, number]
    found = {"weight": weight * scale, "mean": mean, "scale": scale, "bias": bias + (weight * mean).sum(-1)}
    return Trained(
        **{name: values.float() for name, values in found.items()},
        strength=fitted.strengths[:, number],
        inner_loss=fitted.losses[:, number] / VALIDATED,
    )
