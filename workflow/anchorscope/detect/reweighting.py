"""Pathway Reweighting: its gates and amounts, and its states on disk.

The file has one row per analysed example, and a column of vectors for each gate and amount.

The column `published/0.25` holds the state that is read when attention is shifted by a quarter towards the pathway that
the gate `published` predicts; `question_last` the clean state of the question's last token. Both are
`fixed_size_binary` in the model's own dtype. The state for an amount of 0 is the clean one, among the activations.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from anchorscope.extract.store import DTYPES, vector_bytes
from anchorscope.files.sealed_parquet import made_from, provenance, read_table, write_table
from anchorscope.probe.anchor_rules import HONEST

# The gates: trained on the anchors of the first prompt, as published, or of the second.
PUBLISHED = "published"
GATES = (PUBLISHED, HONEST)
AMOUNTS = (0.0, 0.25, 0.5, 1.0, 2.0)  # among which inner folds choose; 0 changes nothing
SHIFTS = tuple((gate, amount) for gate in GATES for amount in AMOUNTS if amount)  # what changes something
QUESTION_LAST = "question_last"
STATE_COLUMNS = [QUESTION_LAST, *(f"{gate}/{amount}" for gate, amount in SHIFTS)]


def layer_read(layers: int) -> int:
    """The layer that all methods of one layer read: the middle one, which no label has chosen."""
    return layers // 2


@dataclass(frozen=True)
class Reweighted:
    """The states of some examples, in float32 and in the order of their ids."""

    ids: list[str]
    question_last: Tensor  # [examples, width]
    states: dict[tuple[str, float], Tensor]  # by gate and amount, each [examples, width]


def write_reweighted(target: Path | str, ids: list[str], states: Tensor, made: dict) -> None:
    """Write states [1 + shifts, examples, width]; `made` says what they were made from."""
    bad = (~states.isfinite()).any(dim=-1).nonzero().tolist()
    if bad:
        column, example = bad[0]
        raise ValueError(
            f"The state {STATE_COLUMNS[column]} of example {ids[example]} is not finite; set the model's dtype to "
            "bfloat16 or float32."
        )
    raw = states.contiguous().view(torch.uint8).numpy()
    vectors = [
        pa.FixedSizeBinaryArray.from_buffers(pa.binary(raw.shape[2]), len(ids), [None, pa.py_buffer(column)])
        for column in raw
    ]
    table = pa.table({"id": pa.array(ids, pa.string()), **dict(zip(STATE_COLUMNS, vectors, strict=True))})
    kind = {"dtype": str(states.dtype).removeprefix("torch."), "width": states.shape[2]}
    write_table(target, table, provenance(**{**made, **kind}))


def read_reweighted(paths: Sequence[Path | str]) -> Reweighted:
    """The states of all shards of a dataset."""
    tables = [read_table(path) for path in paths]
    ids = [name for table in tables for name in table["id"].to_pylist()]
    order = np.argsort(ids, kind="stable")
    parts = [_states(table, made_from(path)["dtype"]) for table, path in zip(tables, paths, strict=True)]
    question_last, *shifted = torch.cat(parts, dim=1)[:, order]
    return Reweighted([ids[index] for index in order], question_last, dict(zip(SHIFTS, shifted, strict=True)))


def _states(table: pa.Table, dtype: str) -> Tensor:
    """[1 + shifts, examples, width] in float32."""
    kind, size = DTYPES[dtype], table.schema.field(QUESTION_LAST).type.byte_width
    states = torch.empty(len(STATE_COLUMNS), len(table), size // kind.itemsize, dtype=kind)
    for name, column in zip(STATE_COLUMNS, states.view(torch.uint8).numpy(), strict=True):
        if len(table):
            column[:] = np.concatenate([vector_bytes(chunk) for chunk in table[name].chunks])
    return states.float()
