"""What a model's files must hold before it is measured. Each check that fails says in one sentence what is wrong."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from transformers import PreTrainedTokenizerBase

from anchorscope.files.identity import read_json

if TYPE_CHECKING:
    from transformers import PreTrainedModel  # takes seconds to import, and fetching a model does not need it

# A tokenizer is made from one of these. Without them the library makes one up that knows only its special tokens.
TOKENIZER_SOURCES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")
ROUND_TRIP = "Who wrote “Le Père Goriot” in 1835, and where?"
NAMED = 3  # weights in a message


def check_index(folder: Path, name: str) -> None:
    """Refuse an index of weights that leads out of the folder, or to anything but its safetensors files."""
    files = {file.name for file in folder.glob("*.safetensors")}
    for index in folder.glob("*.safetensors.index.json"):
        weight_map = read_json(index).get("weight_map")
        if not isinstance(weight_map, dict):
            raise ValueError(f"{index.name} of {name} has no weight_map, so it does not say where the weights are.")
        elsewhere = sorted({str(file) for file in weight_map.values()} - files)
        if elsewhere:
            raise ValueError(
                f"{index.name} of {name} names {_some(elsewhere)}, which is not a .safetensors file beside it; "
                "nothing else is opened."
            )


def check_tokenizer_files(folder: Path, name: str) -> None:
    """Refuse a folder in which there is nothing to make a tokenizer from."""
    if not any((folder / file).exists() for file in TOKENIZER_SOURCES):
        raise FileNotFoundError(
            f"The model folder of {name} has no tokenizer; put its tokenizer.json and tokenizer_config.json there."
        )


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, vocabulary: int, name: str) -> None:
    """Refuse a tokenizer that loses text, or that has ids for which the model has no embedding."""
    ids = tokenizer(ROUND_TRIP, add_special_tokens=False)["input_ids"]
    text = str(tokenizer.decode(ids, clean_up_tokenization_spaces=False))
    if "".join(text.split()).casefold() != "".join(ROUND_TRIP.split()).casefold():
        raise ValueError(f"The tokenizer of {name} turns {ROUND_TRIP!r} into {text!r}; it is damaged or incomplete.")
    largest = max(tokenizer.get_vocab().values())
    if largest >= vocabulary:
        raise ValueError(
            f"The tokenizer of {name} has ids up to {largest}, but the model has embeddings for {vocabulary} only "
            "(vocab_size); they do not belong together."
        )


def check_loaded(info: Mapping[str, Collection], name: str) -> None:
    """Refuse a model with weights that did not come from its files: each job would draw other ones at random.

    The library has already left out what the architecture ties or ignores on purpose.
    """
    wrong = {
        "lack": info["missing_keys"],
        "have, but the model has no place for,": info["unexpected_keys"],
        "have in another shape": [key if isinstance(key, str) else key[0] for key in info["mismatched_keys"]],
    }
    said = [f"{verb} {_some(sorted(keys))}" for verb, keys in wrong.items() if keys]
    if said:
        raise ValueError(
            f"The files of {name} {'; they '.join(said)}. Every weight must come from them: do config.json and the "
            ".safetensors files belong together?"
        )


def check_finite(model: "PreTrainedModel", name: str) -> None:
    """Refuse weights that are infinite or not a number."""
    for weight, values in model.named_parameters():
        # Packed weights are whole numbers, and those of one byte cannot be asked.
        if values.is_floating_point() and values.itemsize > 1 and not torch.isfinite(values).all():
            raise ValueError(f"{weight} of {name} holds numbers that are not finite; the file is damaged.")


def _some(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
