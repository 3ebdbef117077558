"""Saliency: how much of a probe's verdict flows by attention from the question's words to the answer."""

import pyarrow as pa
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from anchorscope.answer.prompts import Prompt
from anchorscope.choose.balance import balanced
from anchorscope.engine.work import Route
from anchorscope.extract.axes import CONTROLS, EXACT, Pass
from anchorscope.extract.sequences import build_workload

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


def build_routes(tokenizer: PreTrainedTokenizerBase, prompt: Prompt, examples: pa.Table, position: str) -> list[Route]:
    """From each example's exact question tokens, and from as many others, to its answer up to `position`."""
    # The token before the exact answer tells where the answer begins.
    workload = build_workload(
        tokenizer, {"first": prompt}, examples, passes=list(PASSES.values()), positions=[position, "before_answer"]
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
        for number, flow in enumerate(PASSES)
        for index, example in enumerate(examples)
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)
