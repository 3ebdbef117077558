"""What every job is told that runs a model."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from anchorscope.answer.prompts import PromptSet
from anchorscope.models.manifest import Manifest


@dataclass(frozen=True)
class ModelSettings:
    """How a job runs a model."""

    prompts: PromptSet
    dtype: str
    threads: int
    batch_tokens: int | None  # computed together; None for what suits the device
    code: str  # fingerprint

    @classmethod
    def of(cls, params: Any, manifest: Path | str, threads: int, **others: Any) -> Self:
        """From a rule's params, some of which are named as these settings are; `others` are a stage's own."""
        prompts = PromptSet.from_json(params.prompts, Manifest.read(manifest).prompt)
        shared = {name: getattr(params, name) for name in ("dtype", "batch_tokens", "code")}
        return cls(prompts=prompts, threads=threads, **shared, **others)

    def made(self, stage: str, model: Manifest) -> dict[str, object]:
        """What the outputs of a stage say of how they were made."""
        return {
            "stage": stage,
            "model": model.as_json(),
            "prompts": self.prompts.as_json(),
            "dtype": self.dtype,
            "code": self.code,
        }
