"""Saliency: how much of a probe's verdict flows by attention from the question's words to the answer."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from anchorscope.answer.prompts import Prompt
from anchorscope.choose.balance import balanced
from anchorscope.engine.batches import default_tokens, out_of_memory, run_batches
from anchorscope.engine.gradients import Gradients, Probes, Route
from anchorscope.engine.parts import Parts, find_parts
from anchorscope.engine.scores import own_attention
from anchorscope.engine.self_check import allowed, relative_difference
from anchorscope.extract.axes import CONTROLS, EXACT, Headline, Pass
from anchorscope.extract.recorder import MODULES
from anchorscope.extract.sequences import build_workload
from anchorscope.files.logs import log

MOST = 500  # examples of a dataset
PASSES: dict[str, Pass] = {"exact": ("first", EXACT), "random": ("first", CONTROLS[EXACT])}  # whose cut tokens are keys
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


@dataclass(frozen=True)
class Routes:
    """The routes of some examples, and how many leading tokens all of them have in common."""

    routes: list[Route]
    shared: int

    def prefix(self) -> np.ndarray:
        return self.routes[0].ids[: self.shared]


def build_routes(tokenizer: PreTrainedTokenizerBase, prompt: Prompt, examples: pa.Table, position: str) -> Routes:
    """From each example's exact question tokens, and from as many others, to its answer up to `position`."""
    # The token before the exact answer tells where the answer begins.
    workload = build_workload(
        tokenizer, {"first": prompt}, examples, passes=list(PASSES.values()), positions=[position, "before_answer"]
    )
    routes = []
    for sequences, first in zip(workload.sequences, examples["exact_first"].to_pylist(), strict=True):
        read, before = sequences[0].keep
        ids = sequences[0].ids[: read + 1]
        routes.append(Route(ids, min(read, before + 1 - first), [sequence.cut for sequence in sequences]))
    return Routes(routes, workload.shared["first"])


@dataclass(frozen=True)
class Measured:
    """What is known of the examples before they are differentiated; all in the order of the routes."""

    layers: list[int]
    probes: Probes  # of each example, out of fold
    states: Tensor  # that they read, as they were stored: [layers, examples, width]
    rounding: float  # how far rounding moved them, relative to them

    def of(self, batch: list[int]) -> Probes:
        return Probes(self.probes.weight[:, batch], self.probes.bias[:, batch])


def saliency(
    model: PreTrainedModel, routes: Routes, measured: Measured, headline: Headline, batch_tokens: int | None
) -> Tensor:
    """Flows [layers, flows, examples]."""
    parts = find_parts(model)
    found = torch.empty(len(measured.layers), len(PASSES), len(routes.routes))
    with own_attention(model, "eager"), torch.no_grad():
        gradients = _ready(model, parts, routes, measured, headline)

        def differentiate(batch: list[int]) -> None:
            found[:, :, batch], _ = gradients.run([routes.routes[index] for index in batch], measured.of(batch))

        # Examples whose answers start at about the same place share a batch.
        longest = max(len(route.ids) - route.start for route in routes.routes)
        sizes = [route.start + longest for route in routes.routes]
        run_batches(differentiate, sizes, batch_tokens or default_tokens(model), what="differentiating")
    return found


def _ready(model: PreTrainedModel, parts: Parts, routes: Routes, measured: Measured, headline: Headline) -> Gradients:
    """Keys and values are reused where that gives the stored states of two examples of unlike length, else nothing is.

    Run together, the shorter one has a gap, which all layers must skip.
    """
    modules: dict[int, Any] = {layer: MODULES[headline.component](parts.blocks[layer]) for layer in measured.layers}
    by_start = sorted(range(len(routes.routes)), key=lambda index: routes.routes[index].start)
    tried = list(dict.fromkeys([by_start[0], by_start[-1]]))
    expected = measured.states[:, tried].float().flatten(0, 1)
    for prefix in (routes.prefix(), None):
        try:
            gradients = Gradients(model, parts, modules, prefix)
            _, states = gradients.run([routes.routes[index] for index in tried], measured.of(tried))
        except (RuntimeError, TypeError, AttributeError, KeyError, IndexError) as error:  # from the model's own code
            if out_of_memory(error) or prefix is None:
                raise
            continue
        difference = relative_difference(states.flatten(0, 1), expected, model.dtype)
        if difference <= allowed(model.dtype, measured.rounding):
            return gradients
        if prefix is not None:
            log.warning("keys and values cannot be reused, which is slower (relative difference %.2g)", difference)
    raise ValueError(
        f"The states of the model are not those that were extracted (relative difference {difference:.2g}); extract "
        "the activations again, or take saliency out of `experiments`."
    )


def saliency_table(values: Tensor, examples: list[dict], routes: Routes, measured: Measured) -> pa.Table:
    """One row per example, layer and flow; `examples` have an id and whether they are right."""
    rows = [
        {
            "id": example["id"],
            "hallucinated": not example["right"],
            "layer": layer,
            "flow": flow,
            "value": float(values[place, number, index]),
            "keys": len(routes.routes[index].keys[number]),
        }
        for place, layer in enumerate(measured.layers)
        for number, flow in enumerate(PASSES)
        for index, example in enumerate(examples)
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)
