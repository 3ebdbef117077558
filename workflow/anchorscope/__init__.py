"""Anchorscope: where in the network a language model's truthfulness signal is anchored.

One package per stage, in the order the data flows: `questions`, `models`, `answer`, `extract`, `probe`, `summarise`,
`experiments`, `detect`, `draw`, `report`. Stages share `files`, `text` and `engine`. Imports run with the flow only.

Plain functions on plain data. No module here reads the config, the environment or a global: what a job uses reaches it
through its arguments. To use Anchorscope without the workflow, see `anchorscope.api`. `load_detector` is here, too.
"""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    # By name: every job's code depends on this file, and must not depend on all that it could import.
    if name == "load_detector":
        return import_module("anchorscope.detect.detector").load_detector
    raise AttributeError(f"module 'anchorscope' has no attribute {name!r}")
