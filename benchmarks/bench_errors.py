"""How often a trial finds an error of the packed path, and how often it takes a sound model for a broken one.

    python benchmarks/bench_errors.py                     every architecture, small, with random weights
    python benchmarks/bench_errors.py --kinds llama gpt2  some of them

In every dtype, with random weights and with outliers among them, a thousand times the median. An error that changes no
bit of a model's states (a window that it does not have) is not counted.
"""

import logging
import sys

import numpy as np
import torch
from common import ROOT, arguments, machine, report

sys.path.insert(0, str(ROOT / "tests" / "helpers"))

from anchorscope.engine.attention_mask import own_attention
from anchorscope.engine.parts import find_parts
from anchorscope.engine.self_check import _Trial, choose_path
from anchorscope.files.logs import log, progress
from architectures import VOCABULARY, architectures, small_model
from planted_errors import ERRORS, plant_outliers, with_biases

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
TOKENS, SHARED = 46, 20
Row = dict[str, object]


def trial_of(kind: str, dtype: torch.dtype, outliers: bool) -> tuple[_Trial, str] | None:
    """A trial of a small model, and the attention code that it takes; None where the model is not packed in float32."""
    model = small_model(kind)
    parts = find_parts(model)
    with_biases(model, parts)
    ids = np.random.default_rng(0).integers(5, VOCABULARY - 5, TOKENS)
    path = choose_path(model, ids.tolist(), SHARED)
    if path.name != "packed":
        return None
    if outliers:
        plant_outliers(model)
    return _Trial(model.to(dtype), parts, ids, SHARED), path.attention


def found_in(kind: str, dtype: torch.dtype, outliers: bool) -> dict[str, bool | None]:
    """Whether each error is found, None where it changes nothing; and under `sound`, whether there is a false alarm."""
    made = trial_of(kind, dtype, outliers)
    if made is None:
        return {}
    trial, attention = made
    with torch.inference_mode(), own_attention(trial.model, attention):
        trial._run_plain()
        sound = states_of(trial)
        if not all(states.isfinite().all() for states in sound):
            raise ValueError(f"its states are not finite in {dtype}, which is refused where they are stored")
        found: dict[str, bool | None] = {"sound": trial.packed_fault() is not None}
        for name, error in ERRORS.items():
            with error(trial):
                changed = not all(torch.equal(*both) for both in zip(states_of(trial), sound, strict=True))
                found[name] = trial.packed_fault() is not None if changed else None
    return found


def states_of(trial: _Trial) -> list[torch.Tensor]:
    return [states for _, watched in trial._packed(forced=False) for states in watched.states]


def main() -> None:
    options = arguments(
        kinds={"nargs": "+", "default": architectures(), "help": "names of architectures"},
        dtypes={"nargs": "+", "default": list(DTYPES), "help": "dtypes"},
    )
    log.setLevel(logging.ERROR)
    rows: list[Row] = []
    missed: dict[str, list[str]] = {}
    left_out: dict[str, str] = {}
    for dtype in options.dtypes:
        for outliers in (False, True):
            what = f"{dtype}, outliers" if outliers else dtype
            counts: dict[str, list[bool]] = {name: [] for name in ("sound", *ERRORS)}
            for kind in progress(options.kinds, len(options.kinds), what):
                try:
                    found = found_in(kind, DTYPES[dtype], outliers)
                except Exception as error:  # an architecture that is refused, or that cannot be built here
                    left_out.setdefault(kind, " ".join(str(error).split())[:80])
                    continue
                for name, value in found.items():
                    if value is not None:
                        counts[name].append(value)
                        if value == (name == "sound"):
                            missed.setdefault(f"{what}: {name}", []).append(kind)
            rows += [
                {"weights": what, "error": name, "models": len(some), "found": sum(some)}
                for name, some in counts.items()
            ]
    report(rows, {"missed": missed, "left out": left_out} | machine(), options.record)


if __name__ == "__main__":
    main()
