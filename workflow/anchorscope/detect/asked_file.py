"""What a model says of its own answers, on disk: one row per analysed example."""

from pathlib import Path

import pyarrow as pa
import torch
from torch import Tensor

from anchorscope.detect.about_prompts import OPTIONS, SURE
from anchorscope.files.provenance import provenance
from anchorscope.files.sealed_parquet import write_table

SCHEMA = pa.schema([("id", pa.string()), ("p_true", pa.float32()), ("confidence", pa.float32())])


def write_asked(target: Path | str, ids: list[str], said: list[Tensor], made: dict) -> None:
    """Write what the logits [examples, options] of both askings come to; `made` says what they were made from."""
    true, sure = said
    odd = true.isnan().any(dim=1) | sure.isnan().any(dim=1)
    if odd.any():
        raise ValueError(
            f"What the model says of example {ids[int(odd.int().argmax())]} is not a number; "
            "set its dtype to bfloat16 or float32."
        )
    p_true = true.softmax(dim=1)[:, 0]
    confidence = sure.argmax(dim=1).to(torch.float32) / (len(OPTIONS[SURE]) - 1)
    columns = [ids, p_true.numpy(), confidence.numpy()]
    write_table(target, pa.table(columns, schema=SCHEMA), provenance(**made))
