"""A detector on disk: probes as safetensors, and in the header what they were trained on, with a seal over both."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from anchorscope.detect.named_detector import check_detector_file
from anchorscope.files.atomic import atomic
from anchorscope.files.faults import reason_of
from anchorscope.probe.examples import NOT_PROBED

ABOUT, DETECTOR_SEAL = "anchorscope_detector", "anchorscope_seal"  # keys of the header


@dataclass(frozen=True)
class DetectorProbes:
    """One probe per layer: logit = (state - mean) / scale . weight + bias."""

    weight: Tensor  # [layers, width], of standardised states
    mean: Tensor  # [layers, width]
    scale: Tensor  # [layers, width]; 1 where the training states do not vary
    bias: Tensor  # [layers]
    strength: Tensor  # [layers], of the penalty
    inner_loss: Tensor  # [layers], log loss on folds inside the training data

    @property
    def best_layer(self) -> int:
        """The layer with the least loss on inner folds."""
        return int(self.inner_loss.argmin())

    def logits(self, states: Tensor) -> Tensor:
        """Logits of "hallucinated" [layers, examples] of states [layers, examples, width]."""
        standardised = (states.to(self.weight.dtype) - self.mean[:, None]) / self.scale[:, None]
        return torch.baddbmm(self.bias[:, None, None], standardised, self.weight[..., None]).squeeze(-1)


@dataclass(frozen=True)
class About:
    """What a detector was trained on, and what it can be used with."""

    model: str  # its name in the run
    weights: str  # trained or random
    revision: str  # what fixes the weights
    architecture: str
    tokenizer: str  # a hash of it
    style: str  # of the prompt: few_shot or chat
    prompt: list[dict[str, str]] | str  # demonstrations, or the instruction of a chat prompt
    component: str
    position: str
    layer: int  # which is read unless another is asked for
    datasets: list[str]
    examples: int
    dtype: str = "auto"  # that its states were computed in; files of earlier versions do not say


def write_detector(
    target: Path | str, probes: DetectorProbes | None, about: About | dict[str, str], made_from: dict[str, str]
) -> None:
    """Write a detector; the file is whole or absent. `made_from` is its provenance.

    Where there are no probes, `about` says by `not_probed` why.
    """
    described = about if isinstance(about, dict) else asdict(about)
    header = {**made_from, ABOUT: json.dumps(described, sort_keys=True)}
    there = {name: values.contiguous().cpu() for name, values in vars(probes).items()} if probes else {}
    with atomic(target) as temporary:
        temporary.write_bytes(_in_order(save(there, {**header, DETECTOR_SEAL: _seal(header, there)})))


def _in_order(saved: bytes) -> bytes:
    """The same safetensors with the keys of its header sorted: the library writes them in another order each time."""
    end = 8 + int.from_bytes(saved[:8], "little")
    header = json.dumps(json.loads(saved[8:end]), sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + saved[end:]


def read_detector(path: Path | str) -> tuple[DetectorProbes, About]:
    """A detector's probes and what they are about. A file that is damaged or no detector is refused in one sentence."""
    check_detector_file(path)
    try:
        with safe_open(path, framework="pt") as file:
            header = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} cannot be read as safetensors: {reason_of(error)}; make it again.") from error
    if ABOUT not in header:
        raise ValueError(f"{path} is no detector: its header has no {ABOUT}; name a file that a run has trained.")
    if header.pop(DETECTOR_SEAL, None) != _seal(header, tensors):
        raise ValueError(f"{path} is damaged: its content does not match its seal; make it again.")
    about = json.loads(header[ABOUT])
    if NOT_PROBED in about:
        raise ValueError(f"{path} holds no detector: {about[NOT_PROBED]}")
    return DetectorProbes(**tensors), About(**about)


def _seal(header: dict[str, str], tensors: dict[str, Tensor]) -> str:
    """A hash of all that the file holds."""
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(f"{name} {list(tensors[name].shape)} {tensors[name].dtype}".encode())
        digest.update(tensors[name].numpy().tobytes())
    return digest.hexdigest()
