"""Gates, which say how likely each example is Question-Anchored, and their file: a model runs its answers again by it.

Everything is nested. Within a training set, probes of its inner folds say whose verdict flips under the knockout: those
examples are Question-Anchored. The gate learns to tell them from clean states.
"""

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import torch
from torch import Tensor

from anchorscope.detect.reweighting import GATES, PUBLISHED, layer_read
from anchorscope.extract.axes import EXACT, Headline, Pass
from anchorscope.extract.store import ActivationReader, open_activations
from anchorscope.files.logs import log
from anchorscope.files.sealed_parquet import made_from
from anchorscope.probe.anchor_rules import HONEST
from anchorscope.probe.examples import Examples, TooFew, examples_of
from anchorscope.probe.fitting import Fitting
from anchorscope.probe.strengths import TrainingSets, choose_strengths, cross_fitting, inner_logits, own_fold, read
from anchorscope.probe.written import write_probed

FEWEST_LEARNT = 5  # of a group that a gate learns from, and of a class that an expert learns from
GATE_PASSES: tuple[Pass, ...] = (("first", "clean"), ("first", EXACT), ("second", "clean"), ("second", EXACT))
PROMPTS = {PUBLISHED: "first", HONEST: "second"}  # under which a gate's groups are taken
SCHEMA = {"id": pl.String, **dict.fromkeys(GATES, pl.Float32)}


def read_gate_states(reader: ActivationReader, headline: Headline) -> dict[Pass, Tensor]:
    """The states of the layer that is read, [examples, width] by pass."""
    layer, place = layer_read(reader.layers), (headline.component, headline.position)
    read = reader.read_passes(*place, passes=GATE_PASSES, layers=range(layer, layer + 1))
    return {run: states[0].float() for run, states in read.items()}


def find_groups(
    states: dict[Pass, Tensor], labels: Tensor, training_sets: TrainingSets, strengths: Tensor
) -> tuple[dict[str, Tensor], Tensor]:
    """Who is Question-Anchored in each training set, by gate, and the clean inner logits under the first prompt.

    Both are [training sets, examples]; nobody outside the training set is. From states [examples, width] by pass. All
    inner probes have the strength [training sets] of the plain probe.
    """
    anchored, clean = {}, {}
    for gate, prompt in PROMPTS.items():
        own, cut = states[prompt, "clean"][None], states[prompt, EXACT][None]
        (before,), (after,) = inner_logits(own, labels, training_sets, strengths=strengths[None], others=[cut])
        anchored[gate], clean[gate] = (before >= 0) != (after >= 0), before
    return anchored, clean[PUBLISHED]


def read_gate(features: Tensor, anchored: Tensor, training_sets: TrainingSets) -> Tensor:
    """P(Question-Anchored) of everyone by the gate of each training set, [training sets, examples].

    `features` are [training sets, examples, width], or [1, examples, width] where all sets read the same. Where a
    group is too small, or does not stand on both sides of the splits inside, the gate says its share.
    """
    chances = []
    for number, group in enumerate(anchored):
        mine, inside = training_sets.one(number), training_sets.train[number]
        sides = [side for split in mine.splits() for side in (split.train, *split.validated.values())]
        if _smaller(group[inside]) >= FEWEST_LEARNT and all(_smaller(group[side]) > 0 for side in sides):
            seen = features[number % len(features)][None]
            chances.append(read(seen, group.float(), mine)[0, 0].sigmoid())
        else:
            chances.append(group[inside].float().mean().expand(len(group)))
    return torch.stack(chances)


def _smaller(labels: Tensor) -> int:
    return int(min(labels.sum(), (~labels).sum()))


def fit_gates(activations: Sequence[Path | str], dataset: str, target: Path | str, fitting: Fitting) -> None:
    """Write the gates of a model on a dataset. Where its answers are too few to probe, the table says so."""
    reader, model = open_activations(activations, fitting.headline.grid(), [EXACT]), made_from(activations[0])["model"]
    examples = examples_of(
        reader.keys, folds=fitting.folds, repeats=1, seed=fitting.seed, where=f"{model['name']} on {dataset}"
    )
    made = {"stage": "fit_gates", "model": model, "dataset": dataset, "folds": fitting.folds, "code": fitting.code}
    if isinstance(examples, TooFew):
        log.warning("%s", examples.why)
        write_probed([target], examples, made)
    else:
        write_probed([target], [gates_table(read_gate_states(reader, fitting.headline), examples)], made)


def gates_table(states: dict[Pass, Tensor], examples: Examples) -> pl.DataFrame:
    """One row per example, a column for each gate; from states [examples, width] of the layer that is read."""
    labels, folds = torch.from_numpy(examples.hallucinated).float(), torch.from_numpy(examples.splits[0].folds)
    training_sets, clean = cross_fitting(folds), states["first", "clean"][None]
    # Of this one layer the strengths are chosen again: read from the probes, they would tie the model's passes that
    # wait for gates to every component and intervention that is probed.
    strengths = choose_strengths(clean, labels, training_sets)
    anchored, _ = find_groups(states, labels, training_sets, strengths[0])
    chances = {gate: own_fold(read_gate(clean, anchored[gate], training_sets), folds).numpy() for gate in GATES}
    return pl.DataFrame({"id": examples.ids, **chances}, schema=SCHEMA)
