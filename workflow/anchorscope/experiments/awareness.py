"""Self-awareness: how well readers tell the groups, and whether clean states tell more than the clean logits alone.

The readers see clean states, or only what the probes of the rule say about them: their clean logits, with the sign,
without it, or both. `tell_groups` has what each of them says.
"""

from collections.abc import Iterator

import numpy as np
import polars as pl

from anchorscope.experiments.groups import RULES
from anchorscope.experiments.means import LayerMeans, rows
from anchorscope.experiments.names import (
    ABSOLUTE,
    AUC,
    ENOUGH,
    GAIN,
    GROUP,
    LOGIT,
    OTHER_GROUP,
    OTHER_PROMPT,
    READERS,
    SHUFFLED,
    SHUFFLED_GROUP,
    SIGNED,
    STATES,
)
from anchorscope.experiments.record import Experiment, Wanted
from anchorscope.probe.quality import auc
from anchorscope.summarise.bootstrap import Resamples
from anchorscope.summarise.claims import Claim
from anchorscope.summarise.curves import Uncertain, resampled_auc


def awareness_rows(told: pl.DataFrame, resamples: Resamples) -> Iterator[dict]:
    """The AUC of each reader by layer, and the gain of states over each reader of clean logits."""
    for rule in RULES:
        layers = told.filter(rule=rule).sort("layer", "id").partition_by("layer", maintain_order=True)
        names = {"stratum": "all", "rule": rule, "anchor": None}
        compared = {reader: (reader, GROUP) for reader in READERS}
        compared |= {SHUFFLED: (SHUFFLED, SHUFFLED_GROUP), OTHER_PROMPT: (STATES, OTHER_GROUP)}
        curves = {condition: _auc(layers, *pair, resamples) for condition, pair in compared.items()}
        for condition, curve in curves.items():
            yield from rows(curve, **names, measure=AUC, condition=condition)
        for reader in (SIGNED, ABSOLUTE, LOGIT):
            states, other = curves[STATES], curves[reader]
            gain = LayerMeans(states.n, states.fewest, states.value - other.value)
            yield from rows(gain, **names, measure=GAIN, condition=reader)


def _auc(layers: list[pl.DataFrame], ranked: str, group: str, resamples: Resamples) -> LayerMeans:
    """How well the logits of a reader rank a group, in percent."""
    fewest, areas, drawn = [], [], []
    for table in layers:
        positive = table[group].to_numpy()
        fewest.append(min(positive.sum(), (~positive).sum()))
        if table[ranked].null_count() or fewest[-1] < ENOUGH:
            areas.append(np.nan)
            drawn.append(np.full(len(resamples.weights), np.nan))
            continue
        logits = table[ranked].cast(pl.Float64).to_numpy()
        areas.append(100 * auc(logits[None], positive)[0])
        drawn.append(100 * resampled_auc(logits, positive, resamples.weights.T))
    value = Uncertain(np.array(areas), np.stack(drawn, axis=1))
    return LayerMeans(np.full(len(layers), len(layers[0])), np.array(fewest), value)


AWARENESS = Experiment(
    title="Self-awareness",
    shown="""How well the group can be told from clean states, beside the clean logits alone (`signed`,
`absolute`, and `logit` with both), groups of the other prompt, and shuffled groups.""",
    claim=Claim(
        "awareness",
        10,
        "the group can be told from clean states better than from the clean logit and its size",
        "AUC in percent, states minus clean logits, mean over layers",
    ),
    rows=lambda given: awareness_rows(given.measured, given.resamples),
    parts=(
        Wanted("states less clean logit", GAIN, SIGNED, anchor=None),
        Wanted("states less clean logit and its size", GAIN, LOGIT, anchor=None),
    ),
)
