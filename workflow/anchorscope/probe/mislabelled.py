"""What the probes would say if a few labels were wrong.

The probes behind the AUC and behind `replicate` are fitted to labels of which some are turned: on the folds and halves
of the first repeat, with the strengths that were chosen for the labels as they are.
"""

import numpy as np
import polars as pl
import torch
from torch import Tensor

from anchorscope.extract.axes import EXACT
from anchorscope.probe.anchor_rules import FULL, ROLES, Probe
from anchorscope.probe.examples import Examples
from anchorscope.probe.label_errors import Labelling
from anchorscope.probe.logistic import fit_labellings
from anchorscope.probe.scores import Logits, widened
from anchorscope.probe.trainings import whom_folds_hold_out

# What the AUC and the honest gap are made from.
READ: dict[Probe, tuple[str, ...]] = {FULL: ("clean",)}
READ |= {role.labels: ("clean", EXACT) for role in ROLES["replicate"]}


def score_labellings(
    states: dict[tuple[str, str], Tensor],  # (prompt, intervention) -> [layers, examples, width]
    labels: Tensor,  # [labellings, examples]
    folds: Tensor,  # [examples]
    halves: Tensor,  # [examples]
    strengths: Tensor,  # [layers, folds]
) -> Logits:
    """Out-of-fold logits [layers, labellings, examples] of probes fitted to each labelling."""
    held_out = whom_folds_hold_out(folds)
    logits: Logits = {}
    for probe, interventions in READ.items():
        own = {name: widened(states[probe.prompt, name]) for name in interventions}
        found = {name: torch.zeros(len(some), *labels.shape, dtype=torch.float64) for name, some in own.items()}
        for fold, who in enumerate(held_out):
            train = ~who if probe.half is None else ~who & (halves == probe.half)
            fitted = fit_labellings(own["clean"], labels=labels, train=train, strengths=strengths[:, fold])
            for name, vectors in own.items():
                found[name][..., who.cpu()] = fitted.logits(vectors[:, who]).double().cpu()
        logits |= {(probe, name): scored for name, scored in found.items()}
    return logits


def label_errors_table(logits: Logits, drawn: list[Labelling], examples: Examples) -> pl.DataFrame:
    """One row per kind of errors, draw, layer and example, from logits [layers, labellings, examples]."""
    layers, count = len(logits[FULL, "clean"]), len(examples.ids)
    rows = layers * count  # of each labelling
    columns = {
        "errors": pl.Series([one.errors for one in drawn for _ in range(rows)], dtype=pl.String),
        "draw": np.repeat(np.array([one.draw for one in drawn], np.int8), rows),
        "repeat": np.zeros(len(drawn) * rows, np.int8),
        "layer": np.tile(np.repeat(np.arange(layers, dtype=np.int16), count), len(drawn)),
        "id": pl.Series(examples.ids * (layers * len(drawn)), dtype=pl.String),
        "fold": np.tile(examples.splits[0].folds.astype(np.int8), layers * len(drawn)),
        "hallucinated": np.array([np.tile(one.hallucinated, layers) for one in drawn], bool).ravel(),
    }
    for (probe, applied), scored in logits.items():
        state = "clean" if applied == "clean" else "ko"
        columns[f"logit_{state}_{probe.name}"] = scored.transpose(0, 1).numpy().ravel().astype(np.float32)
    return pl.DataFrame(columns)
