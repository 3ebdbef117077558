"""The methods side by side on one model and dataset, and whether knowing pathways helps."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from anchorscope.detect.areas import areas, gains
from anchorscope.detect.curves import calibration_errors, kept, reliability, risks
from anchorscope.detect.names import (
    ENSEMBLE,
    KIND_OF,
    MOP,
    MOP_HONEST,
    MOP_LOGIT_GATE,
    MOP_RANDOM_EXPERTS,
    MOP_RANDOM_GATE,
    PR,
    PR_HONEST,
    PROBE,
)
from anchorscope.detect.scored import Scored

ABLATIONS = (ENSEMBLE, MOP_RANDOM_GATE, MOP_LOGIT_GATE, MOP_RANDOM_EXPERTS)
# What each method that knows pathways must be better than. The ablations of the mixture say nothing about reweighting,
# which without a shift of attention is the plain probe.
AGAINST = {MOP: ABLATIONS, MOP_HONEST: ABLATIONS, PR: (ENSEMBLE, PROBE), PR_HONEST: (ENSEMBLE, PROBE)}
YES, NO, UNDECIDED = "yes", "no", "undecided"


def compare(scored: Scored) -> pl.DataFrame:
    """One row per method: how well it ranks, its gain over the plain probe, calibration, and risk by coverage."""
    behind = _gains(scored, PROBE, scored.methods)  # how far each is behind the probe
    curves = np.stack([risks(scores, scored.hallucinated) for scores in scored.scores])  # [methods, examples]
    examples = len(scored.hallucinated)
    table = pl.DataFrame(
        {
            "method": scored.methods,
            "kind": [KIND_OF[method] for method in scored.methods],
            "n": [examples] * len(scored.methods),
            "hallucinated_share": [float(scored.hallucinated.mean())] * len(scored.methods),
            **areas(scored.scores, hallucinated=scored.hallucinated, clusters=scored.clusters, folds=scored.folds),
            "gain": -behind["gain"],
            "gain_low": -behind["gain_high"],
            "gain_high": -behind["gain_low"],
            "aurc": curves.mean(1),
            "right_at_50": 1 - curves[:, kept(0.5, examples) - 1],
            "right_at_80": 1 - curves[:, kept(0.8, examples) - 1],
        }
    )
    others = pl.col("method") != PROBE
    return table.with_columns(
        pl.when(others).then(pl.col(name)).alias(name) for name in ("gain", "gain_low", "gain_high")
    ).join(calibration_errors(reliability(scored)), on="method", how="left", maintain_order="left")


def pathways(scored: Scored) -> pl.DataFrame:
    """One row per method that knows pathways and per rival without that knowledge: the gain, and whether it is one."""
    tables = []
    for method, rivals in AGAINST.items():
        gain = _gains(scored, method, rivals)
        verdicts = [verdict(low, high) for low, high in zip(gain["gain_low"], gain["gain_high"], strict=True)]
        tables.append(pl.DataFrame({"method": method, "against": rivals, **gain, "helps": verdicts}))
    return pl.concat(tables)


def _gains(scored: Scored, method: str, rivals: Sequence[str]) -> dict[str, np.ndarray]:
    """How far a method is ahead of each rival, [rivals], with intervals of the paired differences."""
    return gains(
        scored.of(method),
        np.stack([scored.of(rival) for rival in rivals]),
        hallucinated=scored.hallucinated,
        clusters=scored.clusters,
        folds=scored.folds,
    )


def verdict(low: float, high: float) -> str:
    """By the interval of a gain: yes above zero, no below it."""
    return YES if low > 0 else NO if high < 0 else UNDECIDED


def overall(verdicts: list[str]) -> str:
    """Pathways help where every comparison says yes; one no is enough against them."""
    return YES if set(verdicts) == {YES} else NO if NO in verdicts else UNDECIDED
