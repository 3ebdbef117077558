"""What a model says of its own answers: whether each is true, and how sure it is."""

import numpy as np
import torch
from torch import Tensor

from anchorscope.detect.about_prompts import Asking
from anchorscope.engine.door import Engine
from anchorscope.engine.work import Variant


def ask_about(engine: Engine, askings: list[Asking]) -> list[Tensor]:
    """The logits [examples, options] of what the model would say, for each asking.

    The askings of an example share its question and answer, and all examples what comes before, where the prompts do.
    """
    items = [
        [[Variant(np.array(ids), read=[len(ids) - 1]) for ids in some]]
        for some in zip(*(asking.sequences for asking in askings), strict=True)
    ]
    found = [torch.empty(len(items), len(asking.options)) for asking in askings]

    def take(batch: list[int], logits: Tensor) -> None:
        for asking, rows, own in zip(askings, found, logits, strict=True):
            rows[batch] = own[:, asking.options].float().cpu()

    engine.logits(items, take, what="asking about answers")
    return found
