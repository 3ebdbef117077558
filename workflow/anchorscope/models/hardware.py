"""What a model is computed on, in words that fit any machine of that kind and name none."""

import platform
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def computed_on(model: "PreTrainedModel") -> dict[str, str | int]:
    """The dtype that a model computes in and why, the kind of its devices, and how many CPU threads it may use."""
    kinds = Counter(_kind(device) for device in {parameter.device for parameter in model.parameters()})
    return {
        "dtype": str(model.dtype).removeprefix("torch."),
        "dtype_because": getattr(model, "dtype_because", "it was given so"),
        "device": ", ".join(f"{count} × {kind}" if count > 1 else kind for kind, count in sorted(kinds.items())),
        "threads": torch.get_num_threads(),
    }


def _kind(device: torch.device) -> str:
    if device.type == "cpu":
        return processor()
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name from Linux if it knows one, else from Python, which knows at least its kind."""
    lines = cpuinfo.read_text(errors="replace").splitlines() if cpuinfo.is_file() else []
    fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    # x86; POWER; MIPS; some ARM boards; RISC-V. Most ARM machines give only numbers.
    names = [fields.get(field) for field in ("model name", "cpu", "cpu model", "hardware", "uarch")]
    return next(filter(None, [*names, platform.processor(), platform.machine()]), "unknown")
