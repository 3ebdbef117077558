"""The dead salmon: what a model of the same shape would show if it had learnt nothing.

It is given the trained model's answers and labels, so that only the weights differ.
"""

from dataclasses import replace
from pathlib import Path

from anchorscope.models.manifest import SALMON, Manifest
from anchorscope.models.revision import revision_of

SEED = 0  # of the weights


def salmon_of(trained: Manifest) -> Manifest:
    """The manifest of a model with the same config and tokenizer, and random weights."""
    folder = Path(trained.path)
    source = {"random": {"config": str(folder / "config.json"), "seed": SEED}}
    return replace(
        trained,
        name=f"{trained.name}{SALMON}",
        source=source,
        weights="random",
        revision=revision_of(folder, source),
    )
