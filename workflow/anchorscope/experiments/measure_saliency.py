"""Saliency: how much of a probe's verdict flows by attention from the question's words to the answer.

From files to a file; needs torch, transformers, numpy and pyarrow, like the extract stage.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from anchorscope.answer.prompts import ModelSettings, Prompt
from anchorscope.choose.balance import balanced
from anchorscope.engine.door import Engine
from anchorscope.engine.work import Probes, Route, Verdicts
from anchorscope.extract.axes import CONTROLS, EXACT, Headline, Pass
from anchorscope.extract.job import EXTRACTION_NEEDS
from anchorscope.extract.sequences import build_workload
from anchorscope.extract.store import ActivationReader, open_activations
from anchorscope.files.sealed_parquet import made_from, provenance, read_table, write_table
from anchorscope.models.loading import computed_on, leave_gpus, load_fetched_tokenizer, load_model
from anchorscope.models.manifest import Manifest
from anchorscope.probe.anchor_rules import FULL
from anchorscope.probe.examples import enough, examples_of, too_few
from anchorscope.probe.kept import read_probes
from anchorscope.probe.logistic import FittedProbes

MOST = 500  # examples of a dataset
# By flow, the pass whose cut tokens are keys.
KEY_PASSES: dict[str, Pass] = {"exact": ("first", EXACT), "random": ("first", CONTROLS[EXACT])}
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("hallucinated", pa.bool_()),
        ("layer", pa.int16()),
        ("flow", pa.string()),
        ("value", pa.float32()),
        ("keys", pa.int32()),
    ]
)


def layers_read(layers: int, reference: int) -> list[int]:
    """The layers whose probes are differentiated: the last of each quarter, and the one whose probe ranks best."""
    return sorted({reference, *(max(0, layers * quarter // 4 - 1) for quarter in range(1, 5))})


def drawn(ids: list[str], right: list[bool], seed: int, most: int = MOST) -> list[int]:
    """Which examples are differentiated: as many right as hallucinated ones, at most so many, drawn by a seed."""
    order = balanced(ids, right, within=[None] * len(ids), seed=seed)
    return [index for verdict in (True, False) for index in [i for i in order if right[i] is verdict][: most // 2]]


def build_routes(tokenizer: PreTrainedTokenizerBase, prompt: Prompt, examples: pa.Table, position: str) -> list[Route]:
    """From each example's exact question tokens, and from as many others, to its answer up to `position`."""
    # The token before the exact answer tells where the answer begins.
    workload = build_workload(
        tokenizer, {"first": prompt}, examples, passes=list(KEY_PASSES.values()), positions=[position, "before_answer"]
    )
    routes = []
    for sequences, first in zip(workload.sequences, examples["exact_first"].to_pylist(), strict=True):
        read, before = sequences[0].read
        ids = sequences[0].ids[: read + 1]
        routes.append(Route(ids, min(read, before + 1 - first), [sequence.cut for sequence in sequences]))
    return routes


def saliency_table(values: Tensor, examples: list[dict], routes: list[Route], layers: list[int]) -> pa.Table:
    """One row per example, layer and flow; `examples` have an id and whether they are right."""
    rows = [
        {
            "id": example["id"],
            "hallucinated": not example["right"],
            "layer": layer,
            "flow": flow,
            "value": float(values[place, number, index]),
            "keys": len(routes[index].keys[number]),
        }
        for place, layer in enumerate(layers)
        for number, flow in enumerate(KEY_PASSES)
        for index, example in enumerate(examples)
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


@dataclass(frozen=True)
class SaliencySettings(ModelSettings):
    """How saliency is measured on one dataset, under the first prompt."""

    dataset: str
    headline: Headline  # the probe whose verdict it is
    folds: int  # as the probes'
    seed: int  # of the folds, and of the draw of examples


def saliency_file(
    activations: Sequence[Path | str],
    chosen: Sequence[Path | str],
    layers: Path | str,
    probes: Path | str,
    manifest: Path | str,
    target: Path | str,
    settings: SaliencySettings,
) -> None:
    """Write the saliency of one model on one dataset. Empty where nothing was probed.

    Everything that needs no GPU is done before one is taken.
    """
    described, few = Manifest.read(manifest), too_few(layers)
    made = {**settings.made("saliency", described), "dataset": settings.dataset, "folds": settings.folds}
    if few:
        write_table(target, SCHEMA.empty_table(), provenance(**made, **few.metadata()))
        return
    torch.set_num_threads(settings.threads)
    reader = open_activations(activations, settings.headline.grid(), [EXACT])
    picked = drawn([key["id"] for key in reader.keys], [key["right"] for key in reader.keys], settings.seed)
    rounding = made_from(activations[0])["path"]["rounding"]
    (first, *_) = read_probes(probes)
    verdicts = _verdicts(reader, read_table(layers), first[FULL], picked, settings, rounding)
    asked = _answered(chosen, [reader.keys[index]["id"] for index in picked])
    tokenizer = load_fetched_tokenizer(described)
    routes = build_routes(
        tokenizer, settings.prompts.built(tokenizer)["first"], asked, position=settings.headline.position
    )
    # Small gradients vanish in float16.
    model = load_model(described, "float32" if settings.dtype == "float16" else settings.dtype, settings.threads)
    computed = computed_on(model)
    values = Engine(model, settings.batch_tokens).flows(
        routes, verdicts, settings.headline.component, what="differentiating"
    )
    leave_gpus(model)
    table = saliency_table(values, asked.select(["id", "right"]).to_pylist(), routes, verdicts.layers)
    write_table(target, table, provenance(**made, computed=computed))


def _verdicts(
    reader: ActivationReader,
    layers: pa.Table,
    probes: FittedProbes,
    picked: list[int],
    settings: SaliencySettings,
    rounding: float,
) -> Verdicts:
    """The probes of the examples' own folds in the first repeat, which never saw them, and what they read."""
    component, position = settings.headline.component, settings.headline.position
    at = (pc.field("component") == component) & (pc.field("position") == position) & pc.field("is_reference")
    read = layers_read(reader.layers, layers.filter(at)["layer"][0].as_py())
    clean = torch.cat(
        [reader.read(component, position, "first", "clean", layers=range(layer, layer + 1)).float() for layer in read]
    )
    examples = enough(
        examples_of(reader.keys, folds=settings.folds, repeats=1, seed=settings.seed, where=settings.dataset)
    )
    own = torch.from_numpy(examples.splits[0].folds)[picked]
    return Verdicts(read, Probes(probes.weight[read][:, own], probes.bias[read][:, own]), clean[:, picked], rounding)


def _answered(files: Sequence[Path | str], ids: list[str]) -> pa.Table:
    """The answers of these ids, in their order."""
    answers = pa.concat_tables(read_table(file, EXTRACTION_NEEDS) for file in files)
    place = {name: row for row, name in enumerate(answers["id"].to_pylist())}
    return answers.take(pa.array([place[name] for name in ids], pa.int64()))
