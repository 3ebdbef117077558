"""How large a model is, from its config alone, and how many cards hold it."""

import math

import torch
from transformers import PreTrainedConfig

from anchorscope.models.kinds import loader_of

FOR_WEIGHTS = 0.85  # the share of a card's memory that weights may take; the rest is for a batch
FOR_SHARDS = (
    0.92  # the same where a model takes several cards; blocks are placed whole, so no card is filled completely
)


def sizes_of_weights(config: PreTrainedConfig) -> dict[str, int]:
    """How many numbers each weight of such a model has, by name. A weight that is used twice is counted once."""
    with torch.device("meta"):
        model = loader_of(config).from_config(config)
    return {name: weight.numel() for name, weight in model.named_parameters()}


def parameters(config: PreTrainedConfig) -> int:
    """How many numbers such a model has."""
    return sum(sizes_of_weights(config).values())


def cards_needed(weight_bytes: int, card_bytes: int) -> int:
    """How many cards of one size hold a model with room for a batch."""
    return math.ceil(weight_bytes / int(FOR_WEIGHTS * card_bytes))
