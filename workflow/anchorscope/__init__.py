"""Anchorscope: where in the network a language model's truthfulness signal is anchored.

Plain functions on plain data. No module here reads the config, the environment or a global:
what a job uses reaches it through its arguments.

For use without the workflow: `load_summary` and `plot_family` read and draw a run's results; `extract` and `summarise`
measure a model that is already loaded. They are imported when first used: a stage needs its own libraries only.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anchorscope.figures import plot_family
    from anchorscope.in_hand import extract, load_summary, summarise

__all__ = ["extract", "load_summary", "plot_family", "summarise"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'anchorscope' has no attribute {name!r}")
    return getattr(import_module("anchorscope.figures" if name == "plot_family" else "anchorscope.in_hand"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
