"""Saliency from files to a file; needs torch, transformers, numpy and pyarrow, like the extract stage."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import torch

from anchorscope.answer.prompts import PromptSet
from anchorscope.engine.gradients import Probes
from anchorscope.experiments.saliency import (
    SCHEMA,
    Measured,
    build_routes,
    drawn,
    layers_read,
    saliency,
    saliency_table,
)
from anchorscope.extract.axes import EXACT, Headline
from anchorscope.extract.job import NEEDED
from anchorscope.extract.store import ActivationReader, open_activations
from anchorscope.files.provenance import provenance
from anchorscope.files.sealed_parquet import made_from, read_table, write_table
from anchorscope.models.hardware import computed_on
from anchorscope.models.loading import leave_cards, load_fetched_tokenizer, load_model
from anchorscope.models.manifest import Manifest
from anchorscope.probe.anchor_rules import FULL
from anchorscope.probe.examples import examples_of
from anchorscope.probe.kept import read_probes
from anchorscope.probe.logistic import FittedProbes
from anchorscope.probe.probed import enough, too_few


@dataclass(frozen=True)
class SaliencySettings:
    """How saliency is measured on one dataset."""

    dataset: str
    headline: Headline  # the probe whose verdict it is
    prompts: PromptSet  # of one prompt, the first
    dtype: str
    threads: int
    batch_tokens: int | None  # computed together; None for what suits the device
    folds: int  # as the probes'
    seed: int  # of the folds, and of the draw of examples
    code: str  # fingerprint


def saliency_file(
    activations: Sequence[Path | str],
    answers: Sequence[Path | str],
    layers: Path | str,
    probes: Path | str,
    manifest: Path | str,
    target: Path | str,
    settings: SaliencySettings,
) -> None:
    """Write the saliency of one model on one dataset. Empty where nothing was probed.

    Everything that needs no card is done before one is taken.
    """
    described, few = Manifest.read(manifest), too_few(layers)
    made = {
        "stage": "saliency",
        "dataset": settings.dataset,
        "model": described.as_json(),
        "prompts": settings.prompts.as_json(),
        "dtype": settings.dtype,
        "folds": settings.folds,
        "code": settings.code,
    }
    if few:
        write_table(target, SCHEMA.empty_table(), provenance(**made, **few.metadata()))
        return
    torch.set_num_threads(settings.threads)
    reader = open_activations(activations, settings.headline.grid(), [EXACT])
    chosen = drawn([key["id"] for key in reader.keys], [key["right"] for key in reader.keys], settings.seed)
    rounding = made_from(activations[0])["path"]["rounding"]
    (first, *_) = read_probes(probes)
    measured = _measured(reader, read_table(layers), first[FULL], chosen, settings, rounding)
    asked = _answered(answers, [reader.keys[index]["id"] for index in chosen])
    tokenizer = load_fetched_tokenizer(described)
    routes = build_routes(
        tokenizer, settings.prompts.built(tokenizer)["first"], asked, position=settings.headline.position
    )
    model = load_model(described, _fine(settings.dtype), settings.threads)
    computed = computed_on(model)
    values = saliency(model, routes, measured, settings.headline, settings.batch_tokens)
    leave_cards(model)
    table = saliency_table(values, asked.select(["id", "right"]).to_pylist(), routes, measured)
    write_table(target, table, provenance(**made, computed=computed))


def _measured(
    reader: ActivationReader,
    layers: pa.Table,
    probes: FittedProbes,
    chosen: list[int],
    settings: SaliencySettings,
    rounding: float,
) -> Measured:
    """The probes of the examples' own folds in the first repeat, which never saw them, and what they read."""
    component, position = settings.headline.component, settings.headline.position
    at = (pc.field("component") == component) & (pc.field("position") == position) & pc.field("is_reference")
    read = layers_read(reader.layers, layers.filter(at)["layer"][0].as_py())
    clean = torch.cat(
        [reader.read(component, position, "first", "clean", layers=range(layer, layer + 1)).float() for layer in read]
    )
    splits = {"folds": settings.folds, "repeats": 1, "seed": settings.seed}
    examples = enough(examples_of(reader.keys, **splits, where=settings.dataset))
    own = torch.from_numpy(examples.splits[0].folds)[chosen]
    return Measured(read, Probes(probes.weight[read][:, own], probes.bias[read][:, own]), clean[:, chosen], rounding)


def _answered(files: Sequence[Path | str], ids: list[str]) -> pa.Table:
    """The answers of these ids, in their order."""
    answers = pa.concat_tables(read_table(file, NEEDED) for file in files)
    place = {name: row for row, name in enumerate(answers["id"].to_pylist())}
    return answers.take(pa.array([place[name] for name in ids], pa.int64()))


def _fine(dtype: str) -> str:
    """The dtype to differentiate in: small gradients vanish in float16."""
    return "float32" if dtype == "float16" else dtype
