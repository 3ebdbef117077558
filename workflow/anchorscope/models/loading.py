"""From a manifest to a tokenizer and a model in memory, on the hardware that is there."""

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedConfig, PreTrainedTokenizerBase

from anchorscope.files.logs import log
from anchorscope.models.cards import cards, give_back, take
from anchorscope.models.sizes import FOR_SHARDS, cards_needed, parameters

if TYPE_CHECKING:
    from transformers import PreTrainedModel  # seconds to import, and not needed to describe a model


def read_config(folder: Path) -> PreTrainedConfig:
    """A model's config. Not asking for code from its repository is not enough: the library would ask the user."""
    return AutoConfig.from_pretrained(folder, trust_remote_code=False)


def load_tokenizer(manifest: dict) -> PreTrainedTokenizerBase:
    gone = sorted(file.name for file in Path(manifest["path"]).iterdir() if not file.exists())
    if gone:
        raise FileNotFoundError(
            f"{', '.join(gone)} in {manifest['path']} lead to files that are gone (was a cache cleared?); "
            f"run `snakemake --cores 1 --force results/models/{manifest['name']}.json` with the same config."
        )
    tokenizer = AutoTokenizer.from_pretrained(manifest["path"], trust_remote_code=False)
    if not tokenizer.is_fast:
        raise ValueError(f"The tokenizer of {manifest['name']} has no offset mapping (tokenizer.json is missing).")
    return tokenizer


def load_model(manifest: dict, dtype: str, threads: int) -> "PreTrainedModel":
    """Load a model for inference on as many GPUs as hold it, or on `threads` CPU threads."""
    torch.set_num_threads(threads)
    folder = Path(manifest["path"])
    if not torch.cuda.is_available():
        return _load(manifest, pick_dtype(dtype, torch.device("cpu")), {"": torch.device("cpu")})
    chosen = pick_dtype(dtype, torch.device("cuda"))
    sizes = [card.total_memory for card in cards()]
    weights = parameters(read_config(folder)) * chosen.itemsize
    needed = cards_needed(weights, min(sizes))
    held = take(needed)
    first = min(held)
    torch.cuda.set_device(first)
    if needed == 1:
        model = _load(manifest, chosen, {"": torch.device("cuda", first)})
    else:
        room = {index: int(FOR_SHARDS * sizes[index]) for index in sorted(held)}
        model = _load(manifest, chosen, "auto", room)
        if not set(model.hf_device_map.values()) <= set(room):
            raise RuntimeError(f"{manifest['name']} does not fit on {needed} GPUs of this size; use larger ones.")
    model.held = held  # the cards are free again when this process ends, or as `leave_cards` does it
    return model


def leave_cards(model: "PreTrainedModel") -> None:
    """Let other jobs have the model's cards, while this one goes on without it: its weights are gone."""
    held = getattr(model, "held", {})
    if held:
        nn.Module.to(model, "meta")  # a model on several cards has a `to` of its own, which refuses
        give_back(held)


def _load(
    manifest: dict, dtype: torch.dtype, devices: dict | str, room: dict[int, int] | None = None
) -> "PreTrainedModel":
    if manifest["weights"] == "random":
        if devices == "auto":
            raise RuntimeError(f"Random weights are drawn on one GPU, and {manifest['name']} needs {len(room)}.")
        model = random_model(Path(manifest["path"]), manifest["source"]["random"]["seed"], dtype, devices[""])
    else:
        model = AutoModelForCausalLM.from_pretrained(
            manifest["path"],
            dtype=dtype,
            device_map=devices,
            max_memory=room,
            use_safetensors=True,
            trust_remote_code=False,
        )
    places = sorted({str(parameter.device) for parameter in model.parameters()})
    log.info("%s is on %s as %s", manifest["name"], ", ".join(places), model.dtype)
    return model.eval().requires_grad_(False)


def random_model(folder: Path, seed: int, dtype: torch.dtype, device: torch.device) -> "PreTrainedModel":
    """A model of the folder's config with freshly drawn weights, made where it will run.

    The same seed gives the same weights on the same kind of device in the same dtype.
    """
    config = read_config(folder)
    torch.manual_seed(seed)
    with device:
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    log.info("drew random weights for %s with seed %d", folder.name, seed)
    return model.eval().requires_grad_(False)


def pick_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 where the hardware multiplies it fast, else float32."""
    if dtype != "auto":
        return getattr(torch, dtype)
    fast = torch.cuda.is_bf16_supported() if device.type == "cuda" else has_matrix_units()
    return torch.bfloat16 if fast else torch.float32


def has_matrix_units() -> bool:
    """Whether this processor is an x86 with AMX. Torch has no public way to ask, so its private one may be gone."""
    ask = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return ask is not None and ask()
