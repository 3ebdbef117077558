"""The two groupings that every experiment is judged under, from a delta table."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from anchorscope.extract.axes import Headline
from anchorscope.probe.anchor_rules import FLIP, FULL, HALF_A, HONEST, SECOND_B, Probe, Role
from anchorscope.probe.quality import flips
from anchorscope.summarise.grouping import LABELLED_UNDER, read_place, share_learnt_from

# `flip` as published; of the two roles of `honest`, the one whose measuring probe reads the first prompt, because
# experiments are run under that prompt only.
RULES = {FLIP: Role(FULL, FULL), HONEST: Role(SECOND_B, HALF_A)}
OTHER_LABELS = {FLIP: SECOND_B, HONEST: HALF_A}  # the probe that labels under the prompt that the rule does not
EXAMPLE_COLUMNS = ["id", "cluster", "popularity", "hallucinated"]


@dataclass(frozen=True)
class Grouping:
    """One rule: arrays [repeats, layers, examples]."""

    question_anchored: np.ndarray  # bool
    other_prompt: np.ndarray  # bool: the same as the other prompt has it
    labelling: np.ndarray  # clean logits of the probe that labels
    measuring: np.ndarray  # clean logits of the probe that measures
    share_learnt: float  # the share of the examples that the smaller of its probes learnt from
    counted: np.ndarray  # bool: part of an estimate
    stands_for: np.ndarray  # [examples], how many answers each of them stands for


@dataclass(frozen=True)
class Groups:
    """The examples of one model on one dataset, in the order of their ids, and their groups under each rule."""

    examples: pl.DataFrame  # id, cluster, popularity, hallucinated
    folds: np.ndarray  # [repeats, examples]
    by_rule: dict[str, Grouping]

    @property
    def popularity(self) -> np.ndarray:
        """NaN where it is not known."""
        return self.examples["popularity"].cast(pl.Float64).fill_null(np.nan).to_numpy()


def read_groups(delta: pl.DataFrame, headline: Headline) -> Groups:
    """From the delta table of one model on one dataset."""
    rows = delta.filter(intervention=LABELLED_UNDER, **vars(headline)).sort("repeat", "layer", "id")
    place = read_place({LABELLED_UNDER: rows}, (FULL, HALF_A, SECOND_B))

    def anchored(probe: Probe) -> np.ndarray:
        return flips(place.clean[probe.name], place.changed[probe.name, LABELLED_UNDER])

    return Groups(
        examples=rows.filter(repeat=rows["repeat"][0], layer=rows["layer"][0]).select(EXAMPLE_COLUMNS),
        folds=place.folds,
        by_rule={
            rule: Grouping(
                question_anchored=anchored(role.labels),
                other_prompt=anchored(OTHER_LABELS[rule]),
                labelling=place.clean[role.labels.name],
                measuring=place.clean[role.measures.name],
                share_learnt=share_learnt_from(role, place.folds),
                counted=np.ones(place.clean[role.labels.name].shape, bool),
                stands_for=np.ones(place.folds.shape[1]),
            )
            for rule, role in RULES.items()
        },
    )
