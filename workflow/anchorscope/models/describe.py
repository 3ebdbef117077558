"""From a folder with a model's files to its manifest."""

import math
import reprlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from transformers import CONFIG_MAPPING, PreTrainedConfig

from anchorscope.models.chat_template import prompt_style
from anchorscope.models.checks import check_index, check_layers, check_tokenizer, naming, read_object
from anchorscope.models.loading import load_tokenizer, read_config
from anchorscope.models.manifest import Manifest, revision_of, tokenizer_hash
from anchorscope.models.sizes import check_kind, shapes_in_files, shapes_of_weights


def describe(folder: Path, name: str, source: dict) -> Manifest:
    """The manifest of the model in a folder."""
    whole, random = check_config(folder, name), "random" in source
    config = whole.get_text_config()
    packed = hasattr(whole, "quantization_config")  # files then hold other numbers than the model
    with naming(f"config.json of {name} does not describe a {config.model_type} model"):
        made = shapes_of_weights(whole) if random or packed else {}
    if not random and not list(folder.glob("*.safetensors")):
        raise FileNotFoundError(f"The model folder of {name} has no .safetensors file; other formats are not loaded.")
    check_index(folder, name)
    shapes = made or _shapes_of_different(folder, whole)
    tokenizer = load_tokenizer(folder, name)
    check_tokenizer(tokenizer, config.vocab_size, name)
    files = [folder / file for file in ("generation_config.json", "config.json")]
    settings = [read_object(file) for file in files if file.exists()]
    with ThreadPoolExecutor(1) as beside:
        revision = beside.submit(revision_of, folder, source)
        tokens = tokenizer_hash(tokenizer)
    return Manifest(
        name=name,
        source=source,
        path=str(folder),
        weights="random" if random else "trained",
        revision=revision.result(),
        architecture=config.model_type,
        parameters=sum(map(math.prod, shapes.values())),
        layers=config.num_hidden_layers,
        width=config.hidden_size,
        stored_dtype=str(config.dtype).removeprefix("torch."),
        tokenizer=tokens,
        prompt="few_shot" if random else prompt_style(settings, tokenizer),
    )


def check_config(folder: Path, name: str) -> PreTrainedConfig:
    """The config of the model in a folder, if such a model can be measured."""
    if not (folder / "config.json").exists():
        raise FileNotFoundError(f"The model folder of {name} has no config.json, which says what kind of model it is.")
    raw = read_object(folder / "config.json")
    kind = raw.get("model_type")
    if not isinstance(kind, str) or kind not in CONFIG_MAPPING:
        raise ValueError(
            f"{name} is of type {reprlib.repr(kind)}, which the installed transformers does not know; code "
            "that comes with a model is never run."
        )
    check_layers(raw, name)
    _check_kernels(raw, name)
    with naming(f"config.json of {name} does not describe a {kind} model"):
        config = read_config(folder)
        config.get_text_config()
    check_kind(config, name)
    return config


def _check_kernels(raw: dict, name: str) -> None:
    """Refuse a config.json that names a repository on the hub whose code the library would fetch and run."""
    waiting: list[object] = [raw]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        elif isinstance(part, dict):
            waiting += part.values()
            for key, value in part.items():
                if key.endswith("_implementation") and "/" in str(value):
                    raise ValueError(
                        f"config.json of {name} says {key} is {reprlib.repr(value)}, which is code on the hub; code "
                        "that comes with a model is never run."
                    )


def _shapes_of_different(folder: Path, config: PreTrainedConfig) -> dict[str, tuple[int, ...]]:
    """The shape of each different weight, by name, from the headers of the files.

    A model made without its weights would say the same, but its code takes longer to import than all the rest.
    """
    shapes = shapes_in_files(folder)
    if getattr(config, "tie_word_embeddings", False):
        shapes.pop("lm_head.weight", None)  # some files hold a weight twice that is used twice
    return shapes
