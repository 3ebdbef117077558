"""How often each verdict on kinds is reached where the truth is known: false alarms, and what can be seen.

    python benchmarks/bench_kinds.py                          the whole grid; on a GPU where there is one
    python benchmarks/bench_kinds.py --counts 400 --draws 20  a part of it

Truths without kinds: "two kinds" is a false alarm. Truths with kinds as far apart as on HotpotQA: it is right. All
draws and layers of a cell are fitted together. Each verdict is judged as the only one of its run, which is the most
liberal; a draw's standard errors are those of its examples.
"""

import sys
from collections import Counter
from itertools import product

import torch
from common import ROOT, arguments, machine, report

sys.path.insert(0, str(ROOT / "tests" / "helpers"))

from anchorscope.files.logs import progress
from anchorscope.summarise.accounts import gains_of, weigh
from anchorscope.summarise.verdict_on_kinds import TWO_KINDS, judge
from planted_kinds import LAYERS, WITH_KINDS, WITHOUT_KINDS, planted

CORRELATIONS = (0.0, 0.4, 0.8)
DRAWS = {150: 200, 400: 200, 1000: 200, 4000: 50}
FOLDS = 5
AT_ONCE = 600_000  # examples of all draws and layers that are fitted together
Row = dict[str, object]


def verdicts(truth: str, draws: int, count: int, correlation: float, seed: int, device: torch.device) -> Row:
    """How often each verdict is reached, and the mean gain of kinds."""
    truths = planted(truth, draws, count, correlation, seed)
    folds = torch.arange(count, device=device) // 2 % FOLDS
    part = max(1, AT_ONCE // (LAYERS * count))
    said: Counter = Counter()
    gains, errors = [], []
    for clean, cut in zip(truths.clean.split(part), truths.cut.split(part), strict=True):
        weighed = weigh(clean.flatten(0, 1).to(device), cut.flatten(0, 1).to(device), folds)
        columns = {"correlation": weighed.correlation.unflatten(0, (-1, LAYERS)).mean(1).tolist()}
        for name, by_layer in gains_of(weighed).items():
            gain = by_layer.unflatten(0, (-1, LAYERS)).mean(1)
            columns[name] = gain.mean(1).tolist()
            columns[f"{name}_error"] = (gain.std(1) / count**0.5).tolist()
        rows = [dict(zip(columns, values, strict=True), n=count) for values in zip(*columns.values(), strict=True)]
        said.update(judge(row, verdicts=1).verdict for row in rows)
        gains += [row["kinds"] for row in rows]
        errors += [row["kinds_error"] for row in rows]
    return {
        "truth": truth,
        "examples": count,
        "correlation": correlation,
        "draws": draws,
        **{verdict: said[verdict] / draws for verdict in ("two kinds", "by degrees", "one mechanism", "undecided")},
        "gain of kinds": round(sum(gains) / draws, 4),
        "its error": round(sum(errors) / draws, 4),
    }


def overall(rows: list[Row]) -> dict[str, float]:
    """The worst cell and the mean of all cells without kinds; the weakest cell that must be seen."""
    alarms = [float(row[TWO_KINDS]) for row in rows if row["truth"] in WITHOUT_KINDS]
    seen = [
        float(row[TWO_KINDS])
        for row in rows
        if row["truth"] in ("25 % lost", "50 % lost") and int(row["examples"]) >= 1000
    ]
    return {
        "false alarms, worst cell": max(alarms, default=0.0),
        "false alarms, all cells": sum(alarms) / max(1, len(alarms)),
        "seen, weakest cell of a quarter and a half of 1,000 and more": min(seen, default=float("nan")),
    }


def main() -> None:
    options = arguments(
        counts={"type": int, "nargs": "+", "default": list(DRAWS), "help": "examples of a run"},
        draws={"type": int, "help": "draws per cell; 200 if not set, and 50 of 4,000 examples"},
        truths={"nargs": "+", "default": [*WITHOUT_KINDS, *WITH_KINDS], "help": "names of truths"},
    )
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    cells = list(product(options.counts, options.truths, CORRELATIONS))
    rows = []
    for count, truth, correlation in progress(cells, len(cells), "cells"):
        draws, number = options.draws or DRAWS.get(count, 200), [*WITHOUT_KINDS, *WITH_KINDS].index(truth)
        seed = 1000 * count + 10 * number + CORRELATIONS.index(correlation)
        rows.append(verdicts(truth, draws, count, correlation=correlation, seed=seed, device=device))
    report(rows, overall(rows) | machine(), options.record)


if __name__ == "__main__":
    main()
