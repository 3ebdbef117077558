"""Self-awareness: can a probe on clean states tell the group, and better than the clean logits alone?

The readers see clean states, or only what the probes of the rule say about them: their clean logits, with the sign,
without it, or both. All are probes, fitted on the same folds with strengths chosen in the same way. Folds are those of
the first repeat.
"""

from collections.abc import Iterator

import numpy as np
import polars as pl
import torch

from anchorscope.experiments.estimates import ENOUGH, Curve, difference, rows, to_table
from anchorscope.experiments.groups import RULES, Grouping, Groups
from anchorscope.extract.store import ActivationReader
from anchorscope.files.logs import progress
from anchorscope.probe.folds import shuffle_labels
from anchorscope.probe.logistic import fit
from anchorscope.probe.quality import auc
from anchorscope.probe.strengths import choose_strengths
from anchorscope.summarise.bootstrap import Resamples
from anchorscope.summarise.curves import Estimate
from anchorscope.summarise.reference import resampled_auc

STATES, SIGNED, ABSOLUTE, LOGIT, SHUFFLED = READERS = ("states", "signed", "absolute", "logit", "shuffled")
OTHER_PROMPT = "other_prompt"  # the reader of states, compared with the groups of the other prompt
GROUP, OTHER_GROUP, SHUFFLED_GROUP = "question_anchored", "anchored_other_prompt", "anchored_shuffled"
AUC, GAIN = "auc", "gain"  # measures


def read_states(reader: ActivationReader, component: str, position: str) -> Iterator[torch.Tensor]:
    """The clean states [examples, width] of each layer."""
    for layer in progress(range(reader.layers), reader.layers, "telling groups"):
        yield reader.read(component, position, "first", "clean", layers=range(layer, layer + 1))[0].float()


def tell_groups(states: Iterator[torch.Tensor], groups: Groups, seed: int) -> pl.DataFrame:
    """What each reader says of each example: one row per rule, layer and example, a column of logits for each reader.

    Where a group has too few examples, the logits are null.
    """
    return pl.concat(
        _told(seen, groups, rule=rule, layer=layer, seed=seed) for layer, seen in enumerate(states) for rule in RULES
    )


def _told(states: torch.Tensor, groups: Groups, rule: str, layer: int, seed: int) -> pl.DataFrame:
    grouping, folds = groups.by_rule[rule], groups.folds[0]
    anchored = grouping.question_anchored[0, layer]
    shuffled = shuffle_labels(groups.examples["id"].to_list(), anchored, folds, seed)
    about = {
        GROUP: anchored,
        OTHER_GROUP: grouping.other_prompt[0, layer],
        SHUFFLED_GROUP: shuffled,
    }
    table = groups.examples.select("id", "cluster", rule=pl.lit(rule), layer=pl.lit(layer, pl.Int16)).with_columns(
        **{name: pl.Series(values) for name, values in about.items()}
    )
    if min(anchored.sum(), (~anchored).sum()) < ENOUGH:
        return table.with_columns(**dict.fromkeys(READERS, pl.lit(None, pl.Float32)))
    seen = _features(states, grouping, layer)
    strengths = {reader: _strengths(some, anchored, folds) for reader, some in seen.items()}
    logits = {reader: _read(some, anchored, folds, strengths[reader]) for reader, some in seen.items()}
    logits[SHUFFLED] = _read(states, shuffled, folds, strengths[STATES])
    return table.with_columns(**{reader: pl.Series(logits[reader], dtype=pl.Float32) for reader in READERS})


def _features(states: torch.Tensor, grouping: Grouping, layer: int) -> dict[str, torch.Tensor]:
    """What each reader of the groups sees, [examples, features]: states, or clean logits of both probes of the rule."""
    signed = torch.from_numpy(np.stack([grouping.labelling[0, layer], grouping.measuring[0, layer]], axis=1)).float()
    return {STATES: states, SIGNED: signed, ABSOLUTE: signed.abs(), LOGIT: torch.hstack([signed, signed.abs()])}


def _strengths(features: torch.Tensor, labels: np.ndarray, folds: np.ndarray) -> torch.Tensor:
    """Chosen inside the training folds, [layers, folds] of one layer."""
    return choose_strengths(
        features[None], labels=torch.from_numpy(labels).float(), folds=torch.from_numpy(folds).long()
    )


def _read(features: torch.Tensor, labels: np.ndarray, folds: np.ndarray, strengths: torch.Tensor) -> np.ndarray:
    """Out-of-fold logits [examples] of a probe on features [examples, width]."""
    held_out = torch.from_numpy(folds == np.arange(folds.max() + 1)[:, None])  # [folds, examples]
    fitted = fit(features=features[None], labels=torch.from_numpy(labels), train=~held_out, strengths=strengths)
    return torch.where(held_out, fitted.logits(features[None])[0], 0.0).sum(0).numpy()


def awareness_table(told: pl.DataFrame, resamples: Resamples) -> pl.DataFrame:
    """The AUC of each reader by layer, and the gain of states over each reader of clean logits."""
    return to_table(_awareness(told, resamples))


def _awareness(told: pl.DataFrame, resamples: Resamples) -> Iterator[dict]:
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
            gain = Curve(states.n, states.fewest, difference(states.estimate, other.estimate))
            yield from rows(gain, **names, measure=GAIN, condition=reader)


def _auc(layers: list[pl.DataFrame], ranked: str, group: str, resamples: Resamples) -> Curve:
    """How well the logits of a reader rank a group, in percent."""
    fewest, areas, drawn = [], [], []
    for table in layers:
        positive = table[group].to_numpy()
        fewest.append(min(positive.sum(), (~positive).sum()))
        if table[ranked].null_count() or fewest[-1] < ENOUGH:
            areas.append(np.nan)
            drawn.append(np.full(len(resamples.weights), np.nan))
            continue
        logits = table[ranked].cast(pl.Float64).to_numpy()[None]
        areas.append(100 * auc(logits, positive)[0])
        drawn.append(100 * resampled_auc(logits, positive, resamples.weights)[:, 0])
    estimate = Estimate(np.array(areas), np.stack(drawn, axis=1))
    return Curve(np.full(len(layers), len(layers[0])), np.array(fewest), estimate)
