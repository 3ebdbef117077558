"""Readers that tell the groups: of clean states, and of clean logits alone.

All are probes, fitted on the same folds with strengths chosen in the same way. Folds are those of the first repeat.
"""

from collections.abc import Iterator

import numpy as np
import polars as pl
import torch

from anchorscope.experiments.groups import RULES, Groups
from anchorscope.experiments.names import (
    ABSOLUTE,
    ENOUGH,
    GROUP,
    LOGIT,
    OTHER_GROUP,
    READERS,
    SHUFFLED,
    SHUFFLED_GROUP,
    SIGNED,
    STATES,
)
from anchorscope.extract.axes import Headline
from anchorscope.extract.store import ActivationReader
from anchorscope.files.logs import progress
from anchorscope.probe.examples import shuffle_labels
from anchorscope.probe.strengths import cross_fitting, fit_training_sets, own_fold, probes_of


def read_group_states(reader: ActivationReader, headline: Headline) -> Iterator[torch.Tensor]:
    """The clean states [examples, width] of each layer."""
    for layer in progress(range(reader.layers), reader.layers, "telling groups"):
        states = reader.read(headline.component, headline.position, "first", "clean", layers=range(layer, layer + 1))
        yield states[0].float()


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
    about = {GROUP: anchored, OTHER_GROUP: grouping.other_prompt[0, layer], SHUFFLED_GROUP: shuffled}
    table = groups.examples.select("id", "cluster", rule=pl.lit(rule), layer=pl.lit(layer, pl.Int16)).with_columns(
        **{name: pl.Series(values) for name, values in about.items()}
    )
    if min(anchored.sum(), (~anchored).sum()) < ENOUGH:
        return table.with_columns(**dict.fromkeys(READERS, pl.lit(None, pl.Float32)))
    # What each reader sees, [1, examples, features]: states, or clean logits of both probes of the rule.
    by_probe = {RULES[rule].labels: grouping.labelling, RULES[rule].measures: grouping.measuring}  # one if both are one
    signed = torch.from_numpy(np.stack([some[0, layer] for some in by_probe.values()], axis=1)).float()
    features = {STATES: states, SIGNED: signed, ABSOLUTE: signed.abs(), LOGIT: torch.hstack([signed, signed.abs()])}
    seen = {reader: some[None] for reader, some in features.items()}
    known, training_sets = torch.from_numpy(anchored).float(), cross_fitting(torch.tensor(folds).long())
    fitted = {reader: fit_training_sets(some, known, training_sets) for reader, some in seen.items()}
    probes = {reader: one.probes for reader, one in fitted.items()}
    probes[SHUFFLED] = probes_of(
        seen[STATES], torch.from_numpy(shuffled), training_sets.train, fitted[STATES].strengths
    )
    seen[SHUFFLED] = seen[STATES]
    logits = {
        reader: own_fold(probes[reader].logits(seen[reader])[0], training_sets.folds).numpy() for reader in READERS
    }
    return table.with_columns(**{reader: pl.Series(some, dtype=pl.Float32) for reader, some in logits.items()})
