"""Out-of-fold probe logits: every example is scored only by probes that never saw it.

| probe | trained on | used for |
|---|---|---|
| full | all training folds, first prompt | P, delta P, `flip`, `fixed`, AUC |
| half_a | half A of the training folds, first prompt | `crossfit`, `replicate` |
| half_b | half B of the training folds, first prompt | `crossfit` |
| second_b | half B of the training folds, second prompt | `replicate` |

The strength is chosen by cross-validation inside the training folds of `full`, once for each layer
and fold, and serves the other three as well.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from anchorscope.probe.logistic import fit, log_loss, path

GROUPS = ((64.0, 16.0, 4.0, 1.0), (2.0**-2, 2.0**-4), (2.0**-6, 2.0**-8, 2.0**-10))  # strengths that are tried together
STRENGTHS = tuple(strength for group in GROUPS for strength in group)
CLEARLY_WORSE = 1.1  # a loss this many times the best one at the end of a group ends the search
CHOICE_TOLERANCE = 1e-4  # enough to compare losses; the probes themselves are solved to the end


@dataclass(frozen=True)
class Scores:
    """Out-of-fold logits of "hallucinated", each [layers, examples]; keyed by (probe, prompt, intervention)."""

    logits: dict[tuple[str, str, str], Tensor]
    strengths: Tensor  # [layers, folds]
    converged: Tensor  # [layers, folds]


PROBES = {
    # probe: (training half, prompt it is trained and used on)
    "full": (None, "first"),
    "half_a": (0, "first"),
    "half_b": (1, "first"),
    "second_b": (1, "second"),
}


def score(
    states: dict[tuple[str, str], Tensor],  # (prompt, intervention) -> [layers, examples, width]
    hallucinated: Tensor,  # [examples], bool
    folds: Tensor,  # [examples]
    halves: Tensor,  # [examples]
) -> Scores:
    """Cross-fit all probes of a set of layers and score every intervention with them.

    States of half precision are widened one at a time.
    """
    labels = hallucinated.float()
    count = int(folds.max()) + 1
    held_out = folds == torch.arange(count, device=folds.device)[:, None]  # [folds, examples]
    strengths = None
    logits, converged = {}, []
    for prompt in dict.fromkeys(prompt for prompt, _ in states):
        clean = _wide(states[prompt, "clean"])
        if strengths is None:
            strengths = choose_strengths(clean, labels, folds)
        mine = [(name, half) for name, (half, trained_on) in PROBES.items() if trained_on == prompt]
        train = torch.cat([~held_out if half is None else ~held_out & (halves == half) for _, half in mine])
        probes = fit(clean, labels, train, strengths.repeat(1, len(mine)))
        converged.append(probes.converged.unflatten(1, (len(mine), count)).all(1))
        for run in (run for run in states if run[0] == prompt):
            found = probes.logits(clean if run[1] == "clean" else _wide(states[run]))
            by_probe = found.unflatten(1, (len(mine), count))  # [layers, probes, folds, examples]
            for place, (name, _) in enumerate(mine):
                logits[name, *run] = torch.where(held_out, by_probe[:, place], 0.0).sum(1).double().cpu()
    return Scores(logits, strengths.cpu(), torch.stack(converged).all(0).cpu())


def _wide(states: Tensor) -> Tensor:
    return states if states.dtype == torch.float64 else states.float()


def choose_strengths(clean: Tensor, labels: Tensor, folds: Tensor, clearly_worse: float = CLEARLY_WORSE) -> Tensor:
    """For each layer and outer fold the strength with the least loss on inner folds, [layers, folds].

    The inner probe that leaves out fold i and its successor j serves both: outer fold i (validated on
    j) and outer fold j (validated on i). So every outer fold is validated on two of its inner folds.
    """
    count = int(folds.max()) + 1
    losses = torch.zeros(len(STRENGTHS), len(clean), count, dtype=clean.dtype, device=clean.device)
    for i in range(count):
        j = (i + 1) % count
        validated = torch.full_like(losses[:, :, [i, j]], torch.inf)
        train = (folds != i) & (folds != j)
        among = torch.stack([folds == j, folds == i])[:, ~train]
        tried = 0
        for logits in path(clean, labels, train, GROUPS, CHOICE_TOLERANCE):
            for column in logits.unbind(1):
                validated[tried] = log_loss(column[:, None], labels[~train], among)
                tried += 1
            if (validated[tried - 1] > clearly_worse * validated.amin(0)).all():
                break
        losses[:, :, [i, j]] += validated
    return torch.tensor(STRENGTHS, dtype=clean.dtype, device=clean.device)[losses.argmin(0)]
