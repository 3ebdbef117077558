"""How large a model is, known from its config alone, and how many cards hold it."""

import math

import torch
from transformers import AutoModelForCausalLM, PreTrainedConfig

FOR_WEIGHTS = 0.85  # the share of a card's memory that weights may take; the rest is for a batch
FOR_SHARDS = 0.92  # of each of several cards: a block is placed whole, so that none is filled to the brim


def sizes_of_weights(config: PreTrainedConfig) -> dict[str, int]:
    """How many numbers each weight of such a model has, by its name; one that is used twice is there once."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    return {name: weight.numel() for name, weight in model.named_parameters()}


def parameters(config: PreTrainedConfig) -> int:
    """How many numbers such a model has."""
    return sum(sizes_of_weights(config).values())


def cards_needed(weight_bytes: int, card_bytes: int) -> int:
    """How many cards of one size hold a model with room for a batch."""
    return math.ceil(weight_bytes / int(FOR_WEIGHTS * card_bytes))
