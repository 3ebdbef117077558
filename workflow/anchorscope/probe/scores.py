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
from anchorscope.probe.logistic import fit
from anchorscope.probe.strengths import inner_losses, least

Logits = dict[tuple[Probe, str], Tensor]  # (probe, intervention) -> [layers, examples]


@dataclass(frozen=True)
class Scores:
    """Out-of-fold logits of "hallucinated", and how the probes behind them were fitted."""

    logits: Logits
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
            {key: logits[some] for key, logits in self.logits.items()}, *(part[some] for part in self._parts())
        )

    def _parts(self) -> tuple[Tensor, ...]:
        return self.shuffled, self.strengths, self.converged, self.inner_losses

    def has(self, probe: Probe, intervention: str) -> bool:
        """Whether the intervention was run under the probe's prompt."""
        return (probe, intervention) in self.logits


def joined(parts: Sequence[Scores]) -> Scores:
    """The layers of one part after those of the other."""
    logits = {key: torch.cat([part.logits[key] for part in parts]) for key in parts[0].logits}
    return Scores(logits, *map(torch.cat, zip(*(part._parts() for part in parts), strict=True)))


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
    converged = []
    for prompt in dict.fromkeys(prompt for prompt, _ in states):
        mine = {intervention: vectors for (other, intervention), vectors in states.items() if other == prompt}
        found, fine = _score_prompt(prompt, mine, labels, held_out=held_out, halves=halves, strengths=strengths)
        logits |= found
        converged.append(fine)
    clean = widened(states["first", "clean"])
    control = fit(features=clean, labels=shuffled.float(), train=~held_out, strengths=strengths).logits(clean)
    return Scores(
        logits=logits,
        shuffled=torch.where(held_out, control, 0.0).sum(1).double().cpu(),
        strengths=strengths.cpu(),
        converged=torch.stack(converged).all(0).cpu(),
        inner_losses=losses.amin(0).cpu(),
    )


def score_first(states: dict[str, Tensor], hallucinated: Tensor, folds: Tensor, halves: Tensor) -> Logits:
    """The logits of the probes of the first prompt alone, for any states [layers, examples, width] by intervention.

    These are the probes that `score` fits: the same numbers from the same clean states, up to the solver's tolerance.
    """
    labels = hallucinated.float()
    strengths = least(inner_losses(widened(states["clean"]), labels, folds))
    held_out = whom_folds_hold_out(folds)
    return _score_prompt("first", states, labels, held_out=held_out, halves=halves, strengths=strengths)[0]


def whom_folds_hold_out(folds: Tensor) -> Tensor:
    """Whom each fold holds out, [folds, examples]."""
    return folds == torch.arange(int(folds.max()) + 1, device=folds.device)[:, None]


def whom_it_sees(probe: Probe, held_out: Tensor, halves: Tensor) -> Tensor:
    """Whom a probe learns from in each fold, [folds, examples]."""
    return ~held_out if probe.half is None else ~held_out & (halves == probe.half)


def _score_prompt(
    prompt: str, states: dict[str, Tensor], labels: Tensor, *, held_out: Tensor, halves: Tensor, strengths: Tensor
) -> tuple[Logits, Tensor]:
    """The logits of a prompt's probes for its states by intervention, and where they converged [layers, folds]."""
    clean, count = widened(states["clean"]), len(held_out)
    probes = [probe for probe in PROBES if probe.prompt == prompt]
    train = torch.cat([whom_it_sees(probe, held_out, halves) for probe in probes])
    fitted = fit(features=clean, labels=labels, train=train, strengths=strengths.repeat(1, len(probes)))
    logits: Logits = {}
    for intervention, vectors in states.items():
        everyone = fitted.logits(clean if intervention == "clean" else widened(vectors))
        by_probe = everyone.unflatten(1, (len(probes), count))  # [layers, probes, folds, examples]
        for number, probe in enumerate(probes):
            own = torch.where(held_out, by_probe[:, number], 0.0).sum(1)
            logits[probe, intervention] = own.double().cpu()
    return logits, fitted.converged.unflatten(1, (len(probes), count)).all(1)


def widened(states: Tensor) -> Tensor:
    return states if states.dtype == torch.float64 else states.float()
