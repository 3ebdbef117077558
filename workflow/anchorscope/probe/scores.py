"""Out-of-fold probe logits: every example is scored only by probes that never saw it.

| probe | trained on | used for |
|---|---|---|
| full | all training folds, first prompt | P, delta P, `flip`, `fixed`, AUC |
| half_a | half A of the training folds, first prompt | `crossfit`, `replicate` |
| half_b | half B of the training folds, first prompt | `crossfit` |
| second_b | half B of the training folds, second prompt | `replicate` |
| shuffled | all training folds, first prompt, labels that are shuffled | what a probe of no meaning reaches |

The strength of the penalty is chosen by cross-validation inside the training folds of `full`, once per layer and fold.
All other probes take the same strength.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from anchorscope.probe.anchor_rules import FULL, HALF_A, HALF_B, SECOND_B, Probe
from anchorscope.probe.by_layer import each
from anchorscope.probe.fitted import fit_trainings
from anchorscope.probe.logistic import FittedProbes, fit
from anchorscope.probe.trainings import cross_fitting, own_fold

Logits = dict[tuple[Probe, str], Tensor]  # (probe, intervention) -> [layers, examples]


@dataclass(frozen=True)
class Scores:
    """Out-of-fold logits of "hallucinated", and how the probes behind them were fitted."""

    logits: Logits
    probes: dict[Probe, FittedProbes]  # [layers, folds]
    shuffled: Tensor  # [layers, examples], of probes that learnt shuffled labels
    strengths: Tensor  # [layers, folds]
    converged: Tensor  # [layers, folds]
    inner_losses: Tensor  # [layers, folds]: of the strength that was chosen, on folds inside the training data

    def of(self, probe: Probe, intervention: str) -> np.ndarray:
        """Logits [layers, examples]."""
        return self.logits[probe, intervention].numpy()

    def interventions(self) -> list[str]:
        """Those that were run under the first prompt; clean is one of them."""
        return [intervention for probe, intervention in self.logits if probe is FULL]


def score(
    states: dict[tuple[str, str], Tensor],  # (prompt, intervention) -> [layers, examples, width]
    hallucinated: Tensor,  # [examples], bool
    folds: Tensor,  # [examples]
    halves: Tensor,  # [examples]
    shuffled: Tensor,  # [examples], bool: the labels of the control probes
) -> Scores:
    """Fit all probes of some layers and score every intervention with them.

    States of half precision are widened one at a time.
    """
    labels, outer = hallucinated.float(), cross_fitting(folds)
    clean = widened(states["first", "clean"])
    fitted = fit_trainings(clean, labels, outer.with_halves(halves))
    strengths, losses = (some[:, : len(outer)] for some in (fitted.strengths, fitted.losses))
    probes = dict(zip((FULL, HALF_A, HALF_B), fitted.probes.parts(3), strict=True))
    control = fit(features=clean, labels=shuffled.float(), train=outer.train, strengths=strengths).logits(clean)
    del clean
    logits = out_of_fold(probes, _under("first", states), folds)
    if ("second", "clean") in states:
        clean, train = widened(states["second", "clean"]), outer.train & (halves == SECOND_B.half)
        probes[SECOND_B] = fit(features=clean, labels=labels, train=train, strengths=strengths)
        del clean
        logits |= out_of_fold({SECOND_B: probes[SECOND_B]}, _under("second", states), folds)
    scores = Scores(
        logits=logits,
        probes=probes,
        shuffled=own_fold(control, folds).double(),
        strengths=strengths,
        converged=torch.stack([one.converged for one in probes.values()]).all(0),
        inner_losses=losses,
    )
    return each(scores, Tensor.cpu)


def _under(prompt: str, states: dict[tuple[str, str], Tensor]) -> dict[str, Tensor]:
    """The states of one prompt, by intervention."""
    return {intervention: vectors for (other, intervention), vectors in states.items() if other == prompt}


def out_of_fold(probes: dict[Probe, FittedProbes], states: dict[str, Tensor], folds: Tensor) -> Logits:
    """What probes of one prompt say of its states [layers, examples, width] by intervention: each of its own fold."""
    logits: Logits = {}
    for intervention, vectors in states.items():
        seen = widened(vectors)
        for probe, fitted in probes.items():
            logits[probe, intervention] = own_fold(fitted.logits(seen), folds).double().cpu()
    return logits


def widened(states: Tensor) -> Tensor:
    return states if states.dtype == torch.float64 else states.float()
