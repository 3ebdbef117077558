"""Anchorscope without the workflow.

`load_summary` and `plot_family` read and draw a run's results. `extract` and `summarise` measure a model that is
already loaded. `load_probes` reads the weights of a run's probes. `load_detector` reads a detector that a run has
trained, whose `score` says how likely answers are hallucinated. Each is imported on first use, so that drawing needs no
torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anchorscope.api.in_hand import extract, summarise
    from anchorscope.api.results import load_summary
    from anchorscope.detect.detector import load_detector
    from anchorscope.draw.figures import plot_family
    from anchorscope.probe.kept import load_probes

__all__ = ["extract", "load_detector", "load_probes", "load_summary", "plot_family", "summarise"]
HOMES = {
    "extract": "anchorscope.api.in_hand",
    "load_detector": "anchorscope.detect.detector",
    "load_probes": "anchorscope.probe.kept",
    "load_summary": "anchorscope.api.results",
    "plot_family": "anchorscope.draw.figures",
    "summarise": "anchorscope.api.in_hand",
}


def __getattr__(name: str) -> object:
    if name not in HOMES:
        raise AttributeError(f"module 'anchorscope.api' has no attribute {name!r}")
    return getattr(import_module(HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
