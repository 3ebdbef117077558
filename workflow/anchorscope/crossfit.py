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

from anchorscope.probe import fit, log_loss, solve, standardise

STRENGTHS = tuple(64.0 / 4**step for step in range(9))  # 64 to 0.001; each start is the last one's solution
CLEARLY_WORSE = 1.1  # a loss this many times the best one ends the search towards weaker penalties
CHOICE_TOLERANCE = 1e-3  # enough to compare losses; the probes themselves are solved to the end


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
    """Cross-fit all probes of a set of layers and score every intervention with them."""
    labels = hallucinated.double()
    strengths = choose_strengths(states["first", "clean"], labels, folds)
    number_of_folds = strengths.shape[1]
    logits = {
        (probe, prompt, intervention): torch.full(states["first", "clean"].shape[:2], torch.nan, dtype=torch.float64)
        for probe, (_, trained_on) in PROBES.items()
        for prompt, intervention in states
        if prompt == trained_on
    }
    converged = torch.ones_like(strengths, dtype=torch.bool)
    for fold in range(number_of_folds):
        held_out = folds == fold
        for probe, (half, prompt) in PROBES.items():
            train = ~held_out if half is None else ~held_out & (halves == half)
            probes = fit(states[prompt, "clean"][:, train], labels[train], strengths[:, fold])
            converged[:, fold] &= probes.converged
            for run in (run for run in states if run[0] == prompt):
                logits[probe, *run][:, held_out] = probes.logits(states[run][:, held_out])
    return Scores(logits, strengths, converged)


def choose_strengths(clean: Tensor, labels: Tensor, folds: Tensor) -> Tensor:
    """For each layer and outer fold the strength with the least loss on inner folds, [layers, folds].

    The inner probe that leaves out fold i and its successor j serves both: outer fold i (validated on
    j) and outer fold j (validated on i). So every outer fold is validated on two of its inner folds.
    """
    count = int(folds.max()) + 1
    losses = torch.zeros(len(STRENGTHS), clean.shape[0], count)
    for i in range(count):
        j = (i + 1) % count
        train = (folds != i) & (folds != j)
        scaled, mean, scale = standardise(clean[:, train])
        gram = scaled @ scaled.mT
        tests = {k: (clean[:, folds == k] - mean[:, None]) / scale[:, None] for k in (i, j)}
        cross = {k: tests[k] @ scaled.mT for k in (i, j)}  # [layers, tested, trained]
        validated = torch.full_like(losses, torch.inf)
        start = None
        for index, strength in enumerate(STRENGTHS):
            wanted = torch.full((len(gram),), strength)
            dual, bias, _ = solve(gram, labels[train], wanted, start, CHOICE_TOLERANCE)
            start = dual, bias
            for outer, inner in ((i, j), (j, i)):
                logits = (cross[inner] @ dual[..., None])[..., 0] + bias[:, None]
                validated[index, :, outer] = log_loss(logits, labels[folds == inner])
            if (validated[index][:, [i, j]] > CLEARLY_WORSE * validated[:, :, [i, j]].amin(0)).all():
                break
        losses[:, :, [i, j]] += validated[:, :, [i, j]]
    return torch.tensor(STRENGTHS, dtype=torch.float64)[losses.argmin(0)]
