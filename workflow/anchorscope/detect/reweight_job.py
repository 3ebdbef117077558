"""Reweighted states from files to a file; needs torch, transformers, numpy and pyarrow, like the extract stage."""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from anchorscope.answer.prompts import PromptSet
from anchorscope.detect.names import GATES, SHIFTS, layer_read
from anchorscope.detect.reweight import marked_examples, reweighted_states, workload_of
from anchorscope.detect.reweighted_file import write_reweighted
from anchorscope.engine.self_check import Path as RunPath
from anchorscope.extract.axes import Headline
from anchorscope.extract.job import NEEDED
from anchorscope.extract.run import Balance, analysed, path_for
from anchorscope.files.sealed_parquet import made_from, read_table
from anchorscope.models.hardware import computed_on
from anchorscope.models.loading import leave_cards, load_fetched_tokenizer, load_model
from anchorscope.models.manifest import Manifest


@dataclass(frozen=True)
class ReweightSettings:
    """Which examples of a file of answers are run, and how."""

    headline: Headline  # what is read
    prompts: PromptSet  # of one prompt, the first
    dtype: str
    threads: int
    batch_tokens: int | None  # computed together; None for what suits the device
    balance: Balance  # as in extraction
    seed: int  # of the balanced draw
    code: str  # fingerprint


def reweight_file(
    answers: Path | str, gates: Path | str, manifest: Path | str, target: Path | str, settings: ReweightSettings
) -> None:
    """Write the reweighted states of a file of answers. Empty where nothing was probed, so that there is no gate.

    Everything that needs no card is done before one is taken.
    """
    described, gated = Manifest.read(manifest), made_from(gates)
    made = {
        "stage": "reweight",
        "model": described.as_json(),
        "prompts": settings.prompts.as_json(),
        "headline": [settings.headline.component, settings.headline.position],
        "layer": layer_read(described.layers),
        "code": settings.code,
    }
    examples = analysed(read_table(answers, NEEDED), settings.balance, settings.seed)
    if "not_probed" in gated:
        made["not_probed"] = gated["not_probed"]
        examples = examples.slice(0, 0)
    if len(examples):
        states, more = _states(examples, gates, described, settings)
    else:
        states, more = torch.empty(1 + len(SHIFTS), 0, described.width), {}
    write_reweighted(target, examples["id"].to_pylist(), states, made | more)


def _states(
    examples: pa.Table, gates: Path | str, described: Manifest, settings: ReweightSettings
) -> tuple[Tensor, dict]:
    """States [1 + shifts, examples, width], and what else is to be said of how they were made."""
    headline, tokenizer = settings.headline, load_fetched_tokenizer(described)
    workload = workload_of(tokenizer, settings.prompts.built(tokenizer)["first"], examples, headline.position)
    marked = marked_examples(workload, examples, headline.position)
    chances = gates_of(gates, examples["id"].to_pylist())
    model = load_model(described, settings.dtype, settings.threads)
    path = cast(RunPath, path_for(model, workload, [headline.component], window=None))  # there are examples
    more = {"computed": computed_on(model), "path": path.as_json()}
    states = reweighted_states(
        model,
        path,
        headline,
        marked,
        chances,
        shared=workload.shared["first"],
        batch_tokens=settings.batch_tokens,
    )
    leave_cards(model)
    return states, more


def gates_of(file: Path | str, ids: list[str]) -> np.ndarray:
    """g of every gate for each of these examples, [examples, gates]."""
    table = read_table(file, ["id", *GATES])
    place = {name: row for row, name in enumerate(table["id"].to_pylist())}
    missing = [name for name in ids if name not in place]
    if missing:
        raise ValueError(f"{file} has no gates for example {missing[0]}; delete it, and run again.")
    found = np.stack([table[gate].to_numpy() for gate in GATES], axis=1)
    return found[[place[name] for name in ids]]
