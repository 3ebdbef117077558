"""What class a model is of and how large it is, from its config alone, and how many GPUs hold it."""

import math
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedConfig
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
)

FOR_WEIGHTS = 0.85  # the share of a GPU's memory that weights may take; the rest is for a batch
FOR_BATCHES = 8e9  # bytes besides weights with which batches of any size that a run makes are computed as fast
FOR_SHARDS = 0.92  # the same where a model takes several GPUs; blocks are placed whole, so no GPU is filled completely


def check_kind(config: PreTrainedConfig, name: str) -> None:
    """Refuse what a config already tells cannot be measured. Its weights need not be there."""
    kind = config.model_type
    if kind not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and kind not in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES:
        raise ValueError(
            f"{name} is a {kind} model, which transformers does not list as a causal language model; "
            "docs/architectures.md says which are measured."
        )
    text = config.get_text_config()
    if "num_attention_heads" not in {*text.to_dict(), *text.attribute_map}:
        raise ValueError(
            f"{name} is a {kind} model, which has no attention that could be cut; docs/architectures.md says which are "
            "measured."
        )


def loader_of(config: PreTrainedConfig) -> Any:
    """The class that loads a model. One that also takes images is loaded whole, and its text model is measured."""
    composite = config.get_text_config() is not config
    listed = config.model_type in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
    return AutoModelForImageTextToText if composite and listed else AutoModelForCausalLM


def without_weights(config: PreTrainedConfig) -> Any:
    """Such a model, whose weights take no memory and have no values."""
    with torch.device("meta"):
        return loader_of(config).from_config(config)


def shapes_of_weights(config: PreTrainedConfig) -> dict[str, tuple[int, ...]]:
    """The shape of each weight of such a model, by name. A weight that is used twice is named once."""
    return {name: tuple(weight.shape) for name, weight in without_weights(config).named_parameters()}


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
    model = without_weights(config)
    looked_up, head = model.get_input_embeddings(), model.get_output_embeddings()
    only = looked_up.weight.numel() if head is None or head.weight is not looked_up.weight else 0
    return sum(weight.numel() for weight in model.parameters()) - only


def gpus_needed(weight_bytes: int, gpu_bytes: int) -> int:
    """How many GPUs of one size hold a model with room for a batch."""
    return math.ceil(weight_bytes / int(FOR_WEIGHTS * gpu_bytes))


def comfortable(weight_bytes: int) -> float:
    """How many bytes of a GPU a model fills at most, answers' keys and values included, if more gains it nothing."""
    return 2 * weight_bytes + FOR_BATCHES
