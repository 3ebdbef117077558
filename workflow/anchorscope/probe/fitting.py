"""What every job that fits or applies probes is told, and what it does first."""

import json
from dataclasses import dataclass

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


def begin_fitting(threads: int, cards: int, *, headline: str, folds: int, seed: int, code: str) -> Fitting:
    """Take so many threads, and a card if one is given and works; the headline is given as JSON."""
    torch.set_num_threads(threads)
    give_back_freed_blocks()
    on_card = cards > 0 and torch.cuda.is_available()
    return Fitting(Headline(**json.loads(headline)), folds=folds, seed=seed, on_card=on_card, code=code)
