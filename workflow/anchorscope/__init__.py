"""Anchorscope: where in the network a language model's truthfulness signal is anchored.

    run = anchorscope.open("results")

opens the results of a run: tables, answers, hidden states, probes and figures. `load_detector` reads a detector that a
run has trained. `anchorscope.api` has these and what measures a model without the workflow.

One package per stage, in the order the data flows: `questions`, `models`, `answer`, `extract`, `probe`, `summarise`,
`experiments`, `detect`, `draw`, `report`. Stages share `files`, `text` and `engine`. Imports run with the flow only.

Plain functions on plain data. No module here reads the config, the environment or a global: what a job uses reaches it
through its arguments.
"""

from importlib import import_module
from typing import Any

GIVEN_HERE = ("load_detector", "open")  # of `anchorscope.api`; all else there has the name of a package, or is for few


def __getattr__(name: str) -> Any:
    # By name: every job's code depends on this file, and must not depend on all that it could import.
    if name in GIVEN_HERE:
        return getattr(import_module("anchorscope.api"), name)
    raise AttributeError(f"module 'anchorscope' has no attribute {name!r}")


def __dir__() -> list[str]:
    return ["api", *GIVEN_HERE, *(name for name in globals() if name.startswith("__"))]
