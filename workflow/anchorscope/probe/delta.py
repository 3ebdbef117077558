"""From activations on disk to out-of-fold logits and delta P: one row per repeat, intervention, layer and example."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain, compress
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import polars as pl
import polars.selectors as cs
import torch

from anchorscope.extract.axes import EXACT, Grid, Headline, Pass, passes_of
from anchorscope.extract.store import ActivationReader
from anchorscope.files.logs import log, progress
from anchorscope.models.gpus import one_gpu
from anchorscope.probe.anchor_rules import FULL, PROBES, Probe
from anchorscope.probe.examples import MIN_PER_CLASS, Examples, TooFew, examples_of
from anchorscope.probe.kept import PROBE_COLUMNS
from anchorscope.probe.label_errors import Labelling, labellings
from anchorscope.probe.logistic import FittedProbes
from anchorscope.probe.quality import auc_with_interval, calibration_error, delta_p, flips, sigmoid
from anchorscope.probe.scores import (
    Logits,
    Scores,
    cross_fit_scores,
    distances,
    each,
    join_layers,
    score_labellings,
    under,
)

# How much is probed at a time, in single precision: of one pass what stays in a processor's caches, or of all passes
# what keeps a GPU busy. That has twice as much, because the next layers are gathered while these are probed.
CHUNK_BYTES, GPU_CHUNK_BYTES = 24 * 2**20, 2**32
GPU_TIMES = 10  # as much memory as these states is enough; to train a detector takes 7 times, and the next come in
READ_BYTES = 2**28  # how much of all passes is read at a time; at least a layer
FORMS = {"id": pl.String, "question_form": pl.String, "answer_form": pl.String, "answer_in_question": pl.Boolean}
Made = TypeVar("Made")  # what is made of some layers
States = dict[Pass, torch.Tensor]  # (prompt, intervention) -> [layers, examples, width]
Place = tuple[str, str]  # a component and a position
LabelErrors = dict[Place, list[Labelling]]  # where probes also learn from labels of which some are wrong, and these


class StateReader(Protocol):
    """What reads the states of some examples, [layers, examples, width]."""

    keys: list[dict]
    grid: Grid
    layers: int
    width: int

    def read_passes(self, component: str, position: str, passes: Sequence[Pass], layers: range) -> States: ...


@dataclass(frozen=True)
class Measured:
    """What the probes say about one component and position."""

    scores: list[Scores]  # one for each repeat
    distances: dict[str, torch.Tensor]  # by intervention, from clean states: [layers, examples]
    mislabelled: Logits = field(default_factory=dict)  # [layers, labellings, examples], of probes that learnt errors

    def logits(self, probe: Probe, intervention: str) -> np.ndarray:
        """Logits [repeats, layers, examples]."""
        return np.stack([scores.logits[probe, intervention].numpy() for scores in self.scores])


class DeltaTables(NamedTuple):
    """What is measured of one model on one dataset. Label errors are about the headline, and empty without one."""

    delta: pl.DataFrame
    layers: pl.DataFrame
    label_errors: pl.DataFrame
    probes: list[pl.DataFrame]  # one table for each component and position


def measure(
    reader: ActivationReader,
    folds: int,
    seed: int,
    where: str,
    repeats: int = 3,
    on_gpu: bool = False,
    headline: Headline | None = None,
) -> DeltaTables | TooFew:
    """Every table of one model on one dataset, if it has enough examples."""
    examples = examples_of(reader.keys, folds=folds, repeats=repeats, seed=seed, where=where)
    if isinstance(examples, TooFew):
        return examples
    knockouts = [name for name in reader.knockouts if enough_cut(reader, examples, name)]
    uncut = {cut: ~reader.cuts(name) for name in knockouts if name != EXACT for _, cut in passes_of(name)}
    examples = replace(examples, uncut=uncut)
    passes = [run for name in knockouts for run in passes_of(name)]
    errors = {(headline.component, headline.position): labellings(examples, seed)} if headline else {}
    deltas, layers, mislabelled, probes = [], [], pl.DataFrame(), []
    for place, measured in measure_places(reader, examples, passes, on_gpu=on_gpu, errors=errors).items():
        names = [pl.lit(name).alias(key) for key, name in zip(("component", "position"), place, strict=True)]
        deltas.append(delta_table(measured, examples).with_columns(names))
        layers.append(layers_table(measured, examples).with_columns(names))
        probes.append(probes_table(measured.scores, *place))
        if place in errors:
            mislabelled = label_errors_table(measured.mislabelled, errors[place], examples).with_columns(names)
    return DeltaTables(with_forms(pl.concat(deltas), reader.keys), pl.concat(layers), mislabelled, probes)


def with_forms(delta: pl.DataFrame, keys: Sequence[dict]) -> pl.DataFrame:
    """Beside every example the form of its question and of its answer."""
    forms = pl.DataFrame([{name: key[name] for name in FORMS} for key in keys], schema=FORMS)
    return delta.join(forms, on="id", how="left", maintain_order="left")


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


def measure_places(
    reader: ActivationReader, examples: Examples, passes: Sequence[Pass], on_gpu: bool, errors: LabelErrors
) -> dict[Place, Measured]:
    """Out-of-fold logits of every component and position, and how far their states lie from clean ones."""
    parts: dict[Place, list[Measured]] = {place: [] for place in reader.grid.places()}
    chunks = in_chunks(
        reader,
        passes,
        on_gpu,
        lambda device, states, places, _: _measure_on(device, states, examples, places=places, errors=errors),
    )
    for *_, measured in chunks:
        for place, own in measured.items():
            parts[place].append(own)
    return {place: join_layers(of_place) for place, of_place in parts.items()}


def in_chunks(
    reader: StateReader,
    passes: Sequence[Pass],
    on_gpu: bool,
    measure_on: Callable[[torch.device, States, Sequence[Place], range], Made],
) -> list[tuple[list[Place], range, Made]]:
    """What `measure_on` makes of the states of every component and position: a few layers, or all layers of a few.

    The layers of one place stand before those of the next. So memory stays bounded; the next ones are read while these
    are probed. A GPU gathers many layers, of which few at a time are in the machine's own memory. It is taken once the
    first are read, and given back after the last.
    """
    size = len(reader.keys) * reader.width * 4  # of a layer
    of_passes = size * len(passes)
    step = max(1, GPU_CHUNK_BYTES // of_passes if on_gpu else CHUNK_BYTES // size)
    few = max(1, READ_BYTES // of_passes)
    places, together = reader.grid.places(), max(1, step // reader.layers)
    chunks = [
        (places[first : first + together], range(start, min(start + step, reader.layers)))
        for first in range(0, len(places), together)
        for start in range(0, reader.layers, step)
    ]
    parts = []

    def read(some: Sequence[Place], layers: range) -> Iterator[States]:
        """A few layers at a time."""
        for place in some:
            for start in range(0, len(layers), few):
                yield reader.read_passes(*place, passes=passes, layers=layers[start : start + few])

    with ThreadPoolExecutor(1) as ahead:
        begun = read(*chunks[0])
        first = next(begun)
        largest = max(len(some) * len(layers) for some, layers in chunks)
        with one_gpu(GPU_TIMES * of_passes * largest) if on_gpu else nullcontext(torch.device("cpu")) as device:
            following = ahead.submit(_gather, device, chain([first], begun))
            del first
            for number, (some, layers) in enumerate(progress(chunks, len(chunks), "fitting probes")):
                states = following.result()
                if number + 1 < len(chunks):
                    following = ahead.submit(_gather, device, read(*chunks[number + 1]))
                parts.append((some, layers, measure_on(device, states, some, layers)))
            del states, following  # what is on a GPU
    return parts


def _gather(device: torch.device, read: Iterable[States]) -> States:
    """States on a device, one after the other as they are read."""
    there = [{run: vectors.to(device) for run, vectors in states.items()} for states in read]
    return (
        there[0] if len(there) == 1 else {run: torch.cat([some.pop(run) for some in there]) for run in list(there[0])}
    )


def _measure_on(
    device: torch.device, states: States, examples: Examples, places: Sequence[Place], errors: LabelErrors
) -> dict[Place, Measured]:
    """What the probes of some layers say, in the machine's own memory, from states on a device."""
    hallucinated = torch.from_numpy(examples.hallucinated).to(device)
    scores = [
        cross_fit_scores(
            states,
            hallucinated=hallucinated,
            folds=torch.from_numpy(split.folds).to(device),
            halves=torch.from_numpy(split.halves).to(device),
            shuffled=torch.from_numpy(split.shuffled).to(device),
        )
        for split in examples.splits
    ]
    folds = torch.from_numpy(examples.splits[0].folds).to(device)
    measured = Measured(scores, distances(under("first", states), folds))
    layers = len(scores[0].strengths) // len(places)
    found = {}
    for index, place in enumerate(places):
        some = slice(index * layers, (index + 1) * layers)
        found[place] = _layers(measured, some)
        if place in errors:
            found[place] = _with_errors(found[place], _layers(states, some), examples, errors[place])
    return found


def _layers(kept: Made, some: slice) -> Made:
    return each(kept, lambda tensor: tensor[some])


def _with_errors(measured: Measured, states: States, examples: Examples, drawn: list[Labelling]) -> Measured:
    """Also what probes say that learnt from labels of which some are wrong."""
    split, device = examples.splits[0], states["first", "clean"].device
    labels = np.array([one.hallucinated for one in drawn], bool).reshape(len(drawn), len(examples.ids))
    logits = score_labellings(
        states,
        labels=torch.from_numpy(labels).to(device),
        folds=torch.from_numpy(split.folds).to(device),
        halves=torch.from_numpy(split.halves).to(device),
        strengths=measured.scores[0].strengths.to(device),
    )
    return replace(measured, mislabelled=logits)


def delta_table(measured: Measured, examples: Examples) -> pl.DataFrame:
    """Logits of all probes, P and delta P, one row per repeat, intervention, layer and example."""
    tables = [
        intervention_table(
            scores.logits,
            examples,
            intervention=intervention,
            repeat=repeat,
            also={"distance": measured.distances[intervention].numpy().ravel()},
        )
        for repeat, scores in enumerate(measured.scores)
        for intervention in scores.interventions()
        if intervention != "clean"
    ]
    return pl.concat(tables, how="diagonal")


def intervention_table(
    logits: Logits, examples: Examples, *, intervention: str, repeat: int, also: dict[str, np.ndarray | pl.Series]
) -> pl.DataFrame:
    """What an intervention did in one repeat, one row per layer and example; `also` are further columns."""
    clean, changed = (logits[FULL, state].numpy() for state in ("clean", intervention))
    layers, count = clean.shape
    columns = {
        "id": examples.ids * layers,
        "cluster": examples.clusters * layers,
        "popularity": pl.Series(examples.popularity * layers, dtype=pl.Int64),
        "hallucinated": np.tile(examples.hallucinated, layers),
        "layer": np.repeat(np.arange(layers, dtype=np.int16), count),
        "fold": np.tile(examples.splits[repeat].folds.astype(np.int8), layers),
        **also,
        "p_clean": sigmoid(clean).ravel().astype(np.float32),
        "p_ko": sigmoid(changed).ravel().astype(np.float32),
        "delta_p": delta_p(clean, changed).ravel().astype(np.float32),
        "flips": flips(clean, changed).ravel(),
    }
    for probe in PROBES:
        for state, applied in (("clean", "clean"), ("ko", intervention)):
            if (probe, applied) in logits:
                columns[f"logit_{state}_{probe.name}"] = logits[probe, applied].numpy().ravel().astype(np.float32)
    table = pl.DataFrame(columns).with_columns(intervention=pl.lit(intervention), repeat=pl.lit(repeat, pl.Int8))
    return only_where(table, np.tile(examples.measured(intervention), layers))


def only_where(table: pl.DataFrame, measured: np.ndarray) -> pl.DataFrame:
    """A delta table in which what an intervention did is null where it cut nothing."""
    if measured.all():
        return table
    done = cs.starts_with("p_ko", "delta_p", "flips", "distance", "logit_ko")
    return table.with_columns(pl.when(pl.Series(measured)).then(done))


def layers_table(measured: Measured, examples: Examples) -> pl.DataFrame:
    """How good each layer's probe is, clean and under each intervention, and how far the states lie from clean ones."""
    clean = measured.logits(FULL, "clean")
    middle, spread = clean.mean(2, keepdims=True), clean.std(2, keepdims=True)
    shuffled = np.stack([scores.shuffled.numpy() for scores in measured.scores])
    labels = np.stack([split.shuffled for split in examples.splits])
    control = auc_with_interval(shuffled, labels, examples.clusters)
    converged = torch.stack([scores.converged for scores in measured.scores]).all(0)
    tables = []
    for intervention in measured.scores[0].interventions():
        who = examples.measured(intervention)
        logits, hallucinated = measured.logits(FULL, intervention)[..., who], examples.hallucinated[who]
        along = np.abs(logits - middle) / np.maximum(spread, 1e-12)
        tables.append(
            pl.DataFrame(
                {
                    "intervention": [intervention] * len(converged),
                    "layer": np.arange(len(converged), dtype=np.int16),
                    **auc_with_interval(logits, hallucinated, list(compress(examples.clusters, who))),
                    "calibration_error": calibration_error(logits, hallucinated).mean(0),
                    "distance": measured.distances[intervention][:, who].mean(1).numpy(),
                    "distance_along_probe": along.mean((0, 2)),
                    "unconverged_folds": pl.Series(
                        [[fold for fold, fine in enumerate(folds) if not fine] for folds in converged.tolist()],
                        dtype=pl.List(pl.Int8),
                    ),
                    "inner_losses": pl.Series(measured.scores[0].inner_losses.tolist(), dtype=pl.List(pl.Float64)),
                }
            ).with_columns(better_than_chance=pl.col("auc_low") > 0.5)
        )
    shuffles = {f"{name}_shuffled": pl.Series(values) for name, values in control.items()}
    best = pl.col("layer") == int(np.argmax(tables[0]["auc"].to_numpy()))
    return pl.concat(table.with_columns(**shuffles) for table in tables).with_columns(
        selectivity=pl.col("auc") - pl.col("auc_shuffled"), is_reference=best
    )


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
    for (probe, applied), values in logits.items():
        state = "clean" if applied == "clean" else "ko"
        columns[f"logit_{state}_{probe.name}"] = values.transpose(0, 1).numpy().ravel().astype(np.float32)
    return pl.DataFrame(columns)


def probes_table(by_repeat: Sequence[Scores], component: str, position: str) -> pl.DataFrame:
    """The probes of all repeats, of one component and position."""
    names = {"component": pl.lit(component), "position": pl.lit(position)}
    return pl.concat(
        _of_probe(scores, fitted).with_columns(**names, repeat=pl.lit(repeat, pl.Int8), probe=pl.lit(probe.name))
        for repeat, scores in enumerate(by_repeat)
        for probe, fitted in scores.probes.items()
    ).select(PROBE_COLUMNS)


def _of_probe(scores: Scores, fitted: FittedProbes) -> pl.DataFrame:
    layers, folds, width = fitted.weight.shape
    return pl.DataFrame(
        {
            "layer": np.repeat(np.arange(layers, dtype=np.int16), folds),
            "fold": np.tile(np.arange(folds, dtype=np.int8), layers),
            "strength": scores.strengths.flatten().numpy(),
            "inner_loss": scores.inner_losses.flatten().numpy(),
            "converged": fitted.converged.flatten().numpy(),
            "bias": fitted.bias.flatten().numpy(),
            "weight": pl.Series(fitted.weight.flatten(0, 1).numpy(), dtype=pl.Array(pl.Float32, width)),
        }
    )
