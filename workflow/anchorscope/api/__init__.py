"""Anchorscope without the workflow.

`open`, which is also `anchorscope.open`, opens the results of a run, with all that is in them. `extract` and
`summarise` measure a model that is already loaded. `load_summary`, `load_probes` and `load_detector` read one file of a
run; a detector's `score` says how likely answers are hallucinated. `plot_family` draws any summary. Each is imported on
first use, so that drawing needs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anchorscope.api.in_hand import extract, summarise
    from anchorscope.api.results import Results
    from anchorscope.api.results import open as open
    from anchorscope.detect.detector import load_detector
    from anchorscope.draw.main import plot_family
    from anchorscope.probe.kept import load_probes
    from anchorscope.summarise.run_folder import load_summary

# Without `open`: whoever imports all of these still wants Python's own.
__all__ = ["Results", "extract", "load_detector", "load_probes", "load_summary", "plot_family", "summarise"]
HOMES = {
    "Results": "anchorscope.api.results",
    "extract": "anchorscope.api.in_hand",
    "load_detector": "anchorscope.detect.detector",
    "load_probes": "anchorscope.probe.kept",
    "load_summary": "anchorscope.summarise.run_folder",
    "open": "anchorscope.api.results",
    "plot_family": "anchorscope.draw.main",
    "summarise": "anchorscope.api.in_hand",
}


def __getattr__(name: str) -> object:
    if name not in HOMES:
        raise AttributeError(f"module 'anchorscope.api' has no attribute {name!r}")
    return getattr(import_module(HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *HOMES])
