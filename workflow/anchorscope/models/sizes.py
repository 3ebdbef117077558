"""How large a model is, from its config alone, and how many cards hold it."""

import math
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from transformers import PreTrainedConfig

from anchorscope.models.kinds import loader_of

FOR_WEIGHTS = 0.85  # the share of a card's memory that weights may take; the rest is for a batch
FOR_SHARDS = (
    0.92  # the same where a model takes several cards; blocks are placed whole, so no card is filled completely
)


def shapes_of_weights(config: PreTrainedConfig) -> dict[str, tuple[int, ...]]:
    """The shape of each weight of such a model, by name. A weight that is used twice is named once."""
    with torch.device("meta"):
        model = loader_of(config).from_config(config)
    return {name: tuple(weight.shape) for name, weight in model.named_parameters()}


def shapes_in_files(folder: Path) -> dict[str, tuple[int, ...]]:
    """The shape of each weight in a folder, by name, from the headers of its files."""
    shapes: dict[str, tuple[int, ...]] = {}
    for file in folder.glob("*.safetensors"):
        try:
            with safe_open(file, framework="numpy") as weights:
                shapes |= {name: tuple(weights.get_slice(name).get_shape()) for name in weights.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{file.resolve()} cannot be read as safetensors: {error}; fetch it again.") from error
    return shapes


def parameters(config: PreTrainedConfig) -> int:
    """How many numbers such a model has."""
    return sum(map(math.prod, shapes_of_weights(config).values()))


def multiplied(config: PreTrainedConfig) -> int:
    """How many numbers of such a model are factors of matrix products: all but those that a token is looked up in."""
    with torch.device("meta"):
        model = loader_of(config).from_config(config)
    looked_up, head = model.get_input_embeddings(), model.get_output_embeddings()
    only = looked_up.weight.numel() if head is None or head.weight is not looked_up.weight else 0
    return sum(weight.numel() for weight in model.parameters()) - only


def cards_needed(weight_bytes: int, card_bytes: int) -> int:
    """How many cards of one size hold a model with room for a batch."""
    return math.ceil(weight_bytes / int(FOR_WEIGHTS * card_bytes))
