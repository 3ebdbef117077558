"""What a model's files must hold before it is measured. Each check that fails says in one sentence what is wrong."""

import reprlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from anchorscope.files.faults import LARGEST_TEXT, fault_of_file, reason_of, shortened
from anchorscope.files.identity import read_json
from anchorscope.models.sizes import shapes_of_weights

if TYPE_CHECKING:
    from transformers import PreTrainedModel  # takes seconds to import, and fetching a model does not need it

ROUND_TRIP = "Who wrote “Le Père Goriot” in 1835, and where?"
NAMED, LONGEST_NAME = 3, 80  # weights in a message, and the characters of each
MOST_LAYERS = 1000  # the largest published models have fewer than 200


def check_files(files: Iterable[Path]) -> None:
    """Refuse links that lead nowhere, fifos and devices, and text without end. None of them is opened."""
    for file in files:
        fault = fault_of_file(file, None if file.suffix == ".safetensors" else LARGEST_TEXT)
        if fault:
            raise ValueError(f"{file} {fault}; it cannot be a model's file.")


def read_object(file: Path) -> dict:
    """What a JSON file of a model says; anything but an object is refused."""
    try:
        content = read_json(file)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file.resolve()} is not JSON: {error}.") from error
    if not isinstance(content, dict):
        raise ValueError(f"{file.resolve()} is not a JSON object, and so not a model's {file.name}.")
    return content


def check_index(folder: Path, name: str) -> None:
    """Refuse an index of weights that leads out of the folder, or to anything but its safetensors files."""
    files = {file.name for file in folder.glob("*.safetensors")}
    for index in folder.glob("*.safetensors.index.json"):
        weight_map = read_object(index).get("weight_map")
        if not isinstance(weight_map, dict):
            raise ValueError(f"{index.name} of {name} has no weight_map, so it does not say where the weights are.")
        elsewhere = sorted({str(file) for file in weight_map.values()} - files)
        if elsewhere:
            raise ValueError(
                f"{index.name} of {name} names {_some(elsewhere)}, which is not a .safetensors file beside it; "
                "nothing else is opened."
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


def check_layers(raw: dict, name: str) -> None:
    """Refuse a config.json with more layers than any model has: the library would make them all, one by one."""
    for part in (raw, raw.get("text_config")):
        layers = part.get("num_hidden_layers", 1) if isinstance(part, dict) else 1
        if type(layers) is not int or not 1 <= layers <= MOST_LAYERS:
            raise ValueError(
                f"config.json of {name} says num_hidden_layers is {reprlib.repr(layers)}; it must be a whole "
                f"number from 1 to {MOST_LAYERS}."
            )


def check_shapes(found: Mapping[str, tuple[int, ...]], config: PreTrainedConfig, name: str) -> None:
    """Refuse files whose weights have other shapes than the config says, before memory for those is taken."""
    with naming(f"config.json of {name} does not describe a {config.model_type} model"):
        wanted = shapes_of_weights(config)
    mismatched = [weight for weight, shape in wanted.items() if found.get(weight, shape) != shape]
    check_loaded({"missing_keys": [], "unexpected_keys": [], "mismatched_keys": mismatched}, name)


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


def check_weights_finite(model: "PreTrainedModel", name: str) -> None:
    """Refuse weights that are infinite or not a number."""
    for weight, values in model.named_parameters():
        # Packed weights are whole numbers or of a library's own type, and those of one byte cannot be asked.
        plain = type(values) is nn.Parameter and values.is_floating_point() and values.itemsize > 1
        # The least and the largest tell of all, NaN included, and are found ten times as fast as all are asked.
        if plain and values.numel() and not all(end.isfinite() for end in values.aminmax()):
            raise ValueError(f"{weight} of {name} holds numbers that are not finite; the file is damaged.")


def check_computes(model: "PreTrainedModel", name: str) -> None:
    """Refuse a model that cannot read a text, or whose numbers are not finite when it does."""
    # As many as a short prompt: with fewer keys than a processor's vector has places, its attention may hide a NaN.
    tokens = torch.zeros((1, 64), dtype=torch.long, device=model.device)
    with naming(f"config.json of {name} does not describe a model that computes"), torch.inference_mode():
        logits = model(input_ids=tokens, use_cache=False).logits
    if not torch.isfinite(logits).all():
        raise ValueError(
            f"{name} computes numbers that are not finite in {str(model.dtype).removeprefix('torch.')}; set another "
            "`dtype` in the config, or look for a damaged config.json."
        )


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Turn whatever a library makes of a model's files into one sentence that begins with `what`."""
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        raise ValueError(f"{what}: {reason_of(error)}.") from error


def _some(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(shortened(name, LONGEST_NAME) for name in names[:NAMED]) + more
