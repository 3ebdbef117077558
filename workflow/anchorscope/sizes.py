"""How large a model is, known from its config alone, and how many cards hold it."""

import math

import torch
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

FOR_WEIGHTS = 0.85  # the share of a card's memory that weights may take; the rest is for a batch
FOR_SHARDS = 0.92  # of each of several cards: a block is placed whole, so that none is filled to the brim


def skeleton(config: PreTrainedConfig) -> PreTrainedModel:
    """A model of the config whose weights take no memory."""
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


def parameters(config: PreTrainedConfig) -> int:
    """Weights that are used twice count once."""
    return skeleton(config).num_parameters()


def cards_needed(weight_bytes: int, card_bytes: int) -> int:
    """How many cards of one size hold a model with room for a batch."""
    return math.ceil(weight_bytes / int(FOR_WEIGHTS * card_bytes))
