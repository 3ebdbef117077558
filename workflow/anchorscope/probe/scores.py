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

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from anchorscope.probe.anchor_rules import FULL, PROBES, Probe
from anchorscope.probe.logistic import FittedProbes, fit
from anchorscope.probe.strengths import inner_losses, least

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

    def layers(self, some: slice) -> "Scores":
        """Some of the layers."""
        return Scores(
            {key: logits[some] for key, logits in self.logits.items()},
            {probe: fitted.layers(some) for probe, fitted in self.probes.items()},
            *(part[some] for part in self._parts()),
        )

    def _parts(self) -> tuple[Tensor, ...]:
        return self.shuffled, self.strengths, self.converged, self.inner_losses

    def has(self, probe: Probe, intervention: str) -> bool:
        """Whether the intervention was run under the probe's prompt."""
        return (probe, intervention) in self.logits


def joined(parts: Sequence[Scores]) -> Scores:
    """The layers of one part after those of the other."""
    logits = {key: torch.cat([part.logits[key] for part in parts]) for key in parts[0].logits}
    probes = {probe: joined_probes([part.probes[probe] for part in parts]) for probe in parts[0].probes}
    return Scores(logits, probes, *map(torch.cat, zip(*(part._parts() for part in parts), strict=True)))


def joined_probes(parts: Sequence[FittedProbes]) -> FittedProbes:
    """The layers of one part after those of the other."""
    return FittedProbes(*(torch.cat(same) for same in zip(*(vars(part).values() for part in parts), strict=True)))


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
    labels, held_out = hallucinated.float(), whom_folds_hold_out(folds)
    losses = inner_losses(widened(states["first", "clean"]), labels, folds)
    strengths = least(losses)
    logits: Logits = {}
    probes: dict[Probe, FittedProbes] = {}
    for prompt in dict.fromkeys(prompt for prompt, _ in states):
        mine = {intervention: vectors for (other, intervention), vectors in states.items() if other == prompt}
        seen = {probe: whom_it_sees(probe, held_out, halves) for probe in PROBES if probe.prompt == prompt}
        found = _fit_together(widened(mine["clean"]), labels, seen, strengths)
        logits |= out_of_fold(found, mine, folds)
        probes |= found
    clean = widened(states["first", "clean"])
    control = fit(features=clean, labels=shuffled.float(), train=~held_out, strengths=strengths).logits(clean)
    return Scores(
        logits=logits,
        probes={probe: fitted.to(torch.device("cpu")) for probe, fitted in probes.items()},
        shuffled=torch.where(held_out, control, 0.0).sum(1).double().cpu(),
        strengths=strengths.cpu(),
        converged=torch.stack([fitted.converged for fitted in probes.values()]).all(0).cpu(),
        inner_losses=losses.amin(0).cpu(),
    )


def _fit_together(
    clean: Tensor, labels: Tensor, seen: dict[Probe, Tensor], strengths: Tensor
) -> dict[Probe, FittedProbes]:
    """Probes of the same clean states [layers, examples, width]; `seen` says whom each sees in each fold."""
    train = torch.cat(list(seen.values()))
    fitted = fit(features=clean, labels=labels, train=train, strengths=strengths.repeat(1, len(seen)))
    parts = (part.chunk(len(seen), dim=1) for part in vars(fitted).values())
    return {probe: FittedProbes(*mine) for probe, mine in zip(seen, zip(*parts, strict=True), strict=True)}


def out_of_fold(probes: dict[Probe, FittedProbes], states: dict[str, Tensor], folds: Tensor) -> Logits:
    """What probes of one prompt say of its states [layers, examples, width] by intervention: each of its own fold."""
    held_out = whom_folds_hold_out(folds)
    logits: Logits = {}
    for intervention, vectors in states.items():
        seen = widened(vectors)
        for probe, fitted in probes.items():
            logits[probe, intervention] = torch.where(held_out, fitted.logits(seen), 0.0).sum(1).double().cpu()
    return logits


def whom_folds_hold_out(folds: Tensor) -> Tensor:
    """Whom each fold holds out, [folds, examples]."""
    return folds == torch.arange(int(folds.max()) + 1, device=folds.device)[:, None]


def whom_it_sees(probe: Probe, held_out: Tensor, halves: Tensor) -> Tensor:
    """Whom a probe learns from in each fold, [folds, examples]."""
    return ~held_out if probe.half is None else ~held_out & (halves == probe.half)


def widened(states: Tensor) -> Tensor:
    return states if states.dtype == torch.float64 else states.float()
