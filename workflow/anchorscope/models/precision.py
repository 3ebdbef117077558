"""Which dtype a model computes in, and why: float32 rounds less, and `auto` takes it where it costs little time."""

from typing import Any, NamedTuple

import torch
from transformers import PreTrainedConfig

from anchorscope.models.sizes import multiplied

# What a run computes per question: tokens of the answer with those before it, and of five passes on shared prefixes.
NEW_TOKENS, TOKENS_ANSWERED, TOKENS_EXTRACTED = 32, 20, 90
OPERATIONS_PER_WEIGHT = 2 * (NEW_TOKENS + TOKENS_ANSWERED + TOKENS_EXTRACTED)  # of matrix products, per question
# Per question, what a whole run on one H200 takes besides matrix products: docs/performance.md, "float32 or bfloat16".
SECONDS_BESIDE = 0.02
LONGER = 0.5  # how much longer a run in float32 may take
REACHED = 0.7  # the share of a card's best float32 rate that a run's matrix products reach
CLOCK = 1.7e9  # of cards whose own is not known
OLDER = ((7, 0), (7, 2), (7, 5), (8, 0))  # capabilities with 64 float32 units per multiprocessor; others have 128


class Choice(NamedTuple):
    """A dtype, and half a sentence on why it was taken."""

    dtype: torch.dtype
    why: str


def choose_dtype(asked: str, device: torch.device, config: PreTrainedConfig) -> Choice:
    """The dtype that was asked for; where that is `auto`, float32 unless bfloat16 saves a third of the run's time."""
    if asked != "auto":
        return Choice(getattr(torch, asked), "the config asks for it")
    if device.type != "cuda":
        if has_matrix_units():
            return Choice(torch.bfloat16, "this processor has matrix units for it")
        return Choice(torch.float32, "this processor has no matrix units for bfloat16")
    if not torch.cuda.is_bf16_supported(including_emulation=False):
        return Choice(torch.float32, "this card does not multiply bfloat16")
    most = largest_in_float32(torch.cuda.get_device_properties(device))
    count = multiplied(config)
    why = f"{count / 1e9:.2g} billion weights to multiply; up to {most / 1e9:.2g}, float32 takes little longer here"
    return Choice(torch.float32 if count <= most else torch.bfloat16, why)


def largest_in_float32(card: Any) -> float:
    """How many weights a model may multiply for a run in float32 to take at most half as long again on such a card."""
    return LONGER * SECONDS_BESIDE * REACHED * float32_rate(card) / OPERATIONS_PER_WEIGHT


def float32_rate(card: Any) -> float:
    """The operations per second that a card computes at best in float32; `card` is what torch knows of it."""
    units = 64 if (card.major, card.minor) in OLDER else 128
    return 2 * units * card.multi_processor_count * (getattr(card, "clock_rate", 0) * 1e3 or CLOCK)


def has_matrix_units() -> bool:
    """Whether this processor is an x86 with AMX. Torch has only a private way to ask, which may be gone some day."""
    ask = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return ask is not None and ask()
