"""What kind of model a config describes: whether it can be measured, and what loads it."""

from typing import Any

from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedConfig
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
)


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
