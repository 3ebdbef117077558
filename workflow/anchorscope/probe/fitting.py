"""What every job that fits or applies probes is told, and what it does first."""

from dataclasses import dataclass
from typing import Any

import torch

from anchorscope.extract.axes import Headline
from anchorscope.files.memory import give_back_freed_blocks


@dataclass(frozen=True)
class Fitting:
    """How a job fits probes."""

    headline: Headline  # the component and position that matter most
    folds: int
    seed: int  # of folds and halves
    on_card: bool  # whether a card is used
    code: str  # fingerprint


def begin_fitting(params: Any, threads: int, cards: int) -> Fitting:
    """Take so many threads, and a card if one is given and works; a rule's params are named as the fields are."""
    torch.set_num_threads(threads)
    give_back_freed_blocks()
    return Fitting(
        Headline.from_json(params.headline),
        folds=params.folds,
        seed=params.seed,
        on_card=cards > 0 and torch.cuda.is_available(),
        code=params.code,
    )
