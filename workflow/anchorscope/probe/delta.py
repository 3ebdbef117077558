"""From activations on disk to delta P: one row per example, layer, component, position and intervention."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs
import torch

from anchorscope.extract.axes import EXACT, Pass, passes_of
from anchorscope.extract.store import ActivationReader
from anchorscope.files.logs import log, progress
from anchorscope.models.gpus import one_card
from anchorscope.probe.anchor_rules import FULL, HALF_A, ROLES, SECOND_B, role_columns
from anchorscope.probe.anchors import reference_layer, role_results
from anchorscope.probe.folds import assign_folds, assign_halves
from anchorscope.probe.quality import auc_with_interval, calibration_error
from anchorscope.probe.scores import Scores, score
from anchorscope.probe.verdicts import sigmoid

MIN_PER_CLASS = 20
# Whose logits the delta table holds: those of the probe behind P, and of the two that `replicate` compares.
LOGITS = {"full": FULL, "first": HALF_A, "second": SECOND_B}
# How much of one pass, in single precision, is probed at a time. A card needs many layers to be busy.
CHUNK_BYTES, CARD_BYTES = 24 * 2**20, 2**30
States = dict[Pass, torch.Tensor]  # (prompt, intervention) -> [layers, examples, width]
Place = tuple[str, str]  # a component and a position


class TooFew(ValueError):
    """The answers of one model on one dataset are too few, or too one-sided, for a probe."""


@dataclass(frozen=True)
class Examples:
    """The examples of one model on one dataset, in the order of the activations."""

    ids: list[str]
    clusters: list[str]  # the subject where there is one, else the example itself
    popularity: list[int | None]
    hallucinated: np.ndarray  # [examples], bool
    folds: np.ndarray  # [examples]
    halves: np.ndarray  # [examples]
    uncut: dict[str, np.ndarray] = field(default_factory=dict)  # by intervention, where it cuts nothing, [examples]

    def measured(self, intervention: str) -> np.ndarray:
        """Whom an intervention concerns, [examples]."""
        return ~self.uncut.get(intervention, np.zeros(len(self.ids), bool))


def examples_of(keys: list[dict], folds: int, seed: int, where: str) -> Examples:
    """Labels, clusters and folds. A class that is too small to probe raises `TooFew`, which says how small."""
    ids = [key["id"] for key in keys]
    clusters = [key["subject"] or key["id"] for key in keys]
    hallucinated = np.array([not key["right"] for key in keys], dtype=bool)
    right, wrong = int((~hallucinated).sum()), int(hallucinated.sum())
    if min(right, wrong) < MIN_PER_CLASS:
        raise TooFew(
            f"{where}: {right} right and {wrong} hallucinated answers are too few to probe; "
            f"{MIN_PER_CLASS} of each are needed. Ask more questions, or use a model whose answers are less one-sided."
        )
    fold_of = assign_folds(ids, groups=clusters, labels=hallucinated, folds=folds, seed=seed)
    half_of = assign_halves(ids, groups=clusters, labels=hallucinated, seed=seed)
    for fold in range(folds):
        parts = [fold_of == fold, *((fold_of != fold) & (half_of == half) for half in (0, 1))]
        if any(len(set(hallucinated[part])) < 2 for part in parts):
            raise TooFew(
                f"{where}: fold {fold} or a half of its training data has one class only, because a few subjects "
                "hold most examples; ask more questions or lower `folds`."
            )
    return Examples(
        ids=ids,
        clusters=clusters,
        popularity=[key["popularity"] for key in keys],
        hallucinated=hallucinated,
        folds=fold_of,
        halves=half_of,
    )


def measure(
    reader: ActivationReader, folds: int, seed: int, where: str, on_card: bool = False
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The delta table and the layers table of one model on one dataset."""
    examples = examples_of(reader.keys, folds=folds, seed=seed, where=where)
    knockouts = [name for name in reader.knockouts if enough_cut(reader, examples, name)]
    uncut = {cut: ~reader.cuts(name) for name in knockouts if name != EXACT for _, cut in passes_of(name)}
    examples = replace(examples, uncut=uncut)
    passes = [run for name in knockouts for run in passes_of(name)]
    deltas, layers = [], []
    for (component, position), scores in score_places(reader, examples, passes, on_card).items():
        reference = reference_layer(scores, examples.hallucinated)
        names = [pl.lit(component).alias("component"), pl.lit(position).alias("position")]
        deltas.append(delta_table(scores, examples, reference).with_columns(names))
        layers.append(layers_table(scores, examples, reference).with_columns(names))
    return pl.concat(deltas), pl.concat(layers)


def enough_cut(reader: ActivationReader, examples: Examples, knockout: str) -> bool:
    """Whether a knockout cuts something in enough examples of both classes. The log says where it does not."""
    hallucinated = examples.hallucinated[reader.cuts(knockout)]
    right, wrong = int((~hallucinated).sum()), int(hallucinated.sum())
    enough = min(right, wrong) >= MIN_PER_CLASS
    if not enough:
        log.warning(
            "%s cuts something in %d right and %d hallucinated answers only; %d of each are needed to measure it",
            knockout,
            right,
            wrong,
            MIN_PER_CLASS,
        )
    return enough


def score_places(
    reader: ActivationReader, examples: Examples, passes: Sequence[Pass], on_card: bool
) -> dict[Place, Scores]:
    """Out-of-fold logits of every component and position.

    A few layers at a time, so that memory stays bounded; the next ones are read while these are probed. A card is taken
    once the first layers are read, and given back after the last.
    """
    step = max(1, (CARD_BYTES if on_card else CHUNK_BYTES) // (len(reader.keys) * reader.width * 4))
    places = reader.grid.places()
    chunks = [
        (place, range(start, min(start + step, reader.layers)))
        for place in places
        for start in range(0, reader.layers, step)
    ]
    parts: dict[Place, list[Scores]] = {place: [] for place in places}
    with ThreadPoolExecutor(1) as ahead:
        following = ahead.submit(_read, reader, passes, *chunks[0])
        following.result()
        with one_card() if on_card else nullcontext(torch.device("cpu")) as device:
            for number, (place, _) in enumerate(progress(chunks, len(chunks), "fitting probes")):
                states = following.result()
                if number + 1 < len(chunks):
                    following = ahead.submit(_read, reader, passes, *chunks[number + 1])
                parts[place].append(_score_on(device, states, examples))
    return {place: _joined(of_place) for place, of_place in parts.items()}


def _score_on(device: torch.device, states: States, examples: Examples) -> Scores:
    """Scores in the machine's own memory; those on a card are freed."""
    return score(
        {key: vectors.to(device) for key, vectors in states.items()},
        hallucinated=torch.from_numpy(examples.hallucinated).to(device),
        folds=torch.from_numpy(examples.folds).to(device),
        halves=torch.from_numpy(examples.halves).to(device),
    )


def _read(reader: ActivationReader, passes: Sequence[Pass], place: Place, layers: range) -> States:
    component, position = place
    return reader.read_passes(component, position, passes=passes, layers=layers)


def _joined(parts: list[Scores]) -> Scores:
    """The scores of all layers, from parts that have some layers each."""
    return Scores(
        {key: torch.cat([part.logits[key] for part in parts]) for key in parts[0].logits},
        torch.cat([part.strengths for part in parts]),
        torch.cat([part.converged for part in parts]),
    )


def delta_table(scores: Scores, examples: Examples, reference: int) -> pl.DataFrame:
    """P, delta P and anchors, one row per intervention, layer and example."""
    clean = scores.of(FULL, "clean")
    layers, count = clean.shape
    tables = []
    for intervention in scores.interventions():
        if intervention == "clean":
            continue
        columns: dict[str, Any] = {
            "id": examples.ids * layers,
            "cluster": examples.clusters * layers,
            "popularity": pl.Series(examples.popularity * layers, dtype=pl.Int64),
            "hallucinated": np.tile(examples.hallucinated, layers),
            "layer": np.repeat(np.arange(layers, dtype=np.int16), count),
            "p_clean": sigmoid(clean).ravel().astype(np.float32),
            "p_ko": sigmoid(scores.of(FULL, intervention)).ravel().astype(np.float32),
        }
        for rule in ROLES:
            results = role_results(scores, rule=rule, intervention=intervention, reference=reference)
            for (anchored, delta_p), result in zip(role_columns(rule), results, strict=True):
                if result is not None:
                    columns[anchored] = result.question_anchored.ravel()
                    columns[delta_p] = result.delta_p.ravel().astype(np.float32)
        for name, probe in LOGITS.items():
            for state, applied in (("clean", "clean"), ("ko", intervention)):
                if scores.has(probe, applied):
                    columns[f"logit_{state}_{name}"] = scores.of(probe, applied).ravel().astype(np.float32)
        table = pl.DataFrame(columns).with_columns(pl.lit(intervention).alias("intervention"))
        tables.append(only_where(table, np.tile(examples.measured(intervention), layers)))
    return pl.concat(tables, how="diagonal")


def only_where(table: pl.DataFrame, measured: np.ndarray) -> pl.DataFrame:
    """A delta table in which what an intervention did is null where it cut nothing."""
    if measured.all():
        return table
    done = cs.starts_with("p_ko", "delta_p", "logit_ko")
    return table.with_columns(pl.when(pl.Series(measured)).then(done))


def layers_table(scores: Scores, examples: Examples, reference: int) -> pl.DataFrame:
    """How good each layer's probe is, clean and under each intervention."""
    tables = []
    for intervention in scores.interventions():
        who = examples.measured(intervention)
        logits, hallucinated = scores.of(FULL, intervention)[:, who], examples.hallucinated[who]
        clusters = [cluster for cluster, mine in zip(examples.clusters, who, strict=True) if mine]
        tables.append(
            pl.DataFrame(
                {
                    "intervention": [intervention] * len(logits),
                    "layer": np.arange(len(logits), dtype=np.int16),
                    **auc_with_interval(logits, hallucinated, clusters),
                    "calibration_error": calibration_error(logits, hallucinated),
                    "is_reference": np.arange(len(logits)) == reference,
                    "unconverged_folds": pl.Series(
                        [[fold for fold, fine in enumerate(folds) if not fine] for folds in scores.converged.tolist()],
                        dtype=pl.List(pl.Int8),
                    ),
                }
            ).with_columns(better_than_chance=pl.col("auc_low") > 0.5)
        )
    return pl.concat(tables)
