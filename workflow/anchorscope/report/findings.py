"""What was found, in one sentence per model: how wide the gap is as published, and what is left of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

import polars as pl

from anchorscope.report.numbers import between, signed

NOT_PROBED = "not probed, because its answers are too few or too one-sided."
GAP_CLAIM = 1  # of `summarise.claims`: the gap under the honest rule, averaged over layers


@dataclass(frozen=True)
class Finding:
    """What was found of one model."""

    model: str  # its title
    sentence: str


def published_gaps(headline_rows: pl.DataFrame) -> dict[tuple[str, str], float]:
    """The gap under the published rule for each model and dataset, averaged over layers, where it has a value.

    `headline_rows` are the rows of the summary at the headline's component and position.
    """
    gaps = headline_rows.filter(rule="flip", intervention="exact_question", anchor="gap").drop_nulls("delta_p")
    means = gaps.group_by("model", "dataset").agg(pl.col("delta_p").mean())
    return {(model, dataset): gap for model, dataset, gap in means.iter_rows()}


def findings(claims: Mapping, published: Mapping[tuple[str, str], float], models: Mapping[str, str]) -> list[Finding]:
    """One finding per model; `models` are names and titles, `claims` is the content of claims.json."""
    return [Finding(title, _sentence(name, claims, published)) for name, title in models.items()]


def _sentence(model: str, claims: Mapping, published: Mapping[tuple[str, str], float]) -> str:
    rows = {row["dataset"]: row for row in claims["claims"] if (row["claim"], row["model"]) == (GAP_CLAIM, model)}
    if not rows:
        return NOT_PROBED
    on_all = rows.get(None) or next(iter(rows.values()))  # with one dataset there is no row for all
    if on_all["effect"] is None:
        return f"nothing can be said, because {on_all['because']}."
    judged = [name for name, row in rows.items() if name is not None and row["effect"] is not None]
    gaps = [published[model, dataset] for dataset in judged if (model, dataset) in published]
    averaged = f"layers and {len(judged)} datasets" if len(judged) > 1 else "layers"
    as_published = f"is {signed(fmean(gaps))} points" if gaps else "has no value"
    honest = f"{signed(on_all['effect'])} points (95 % interval {between(on_all['low'], on_all['high'])})"
    return (
        f"averaged over {averaged}, the gap in ΔP between Question- and Answer-Anchored examples {as_published} under "
        f"the published rule and {honest} under the honest one{_beside_one_mechanism(model, claims)}."
    )


def _beside_one_mechanism(model: str, claims: Mapping) -> str:
    """On how many datasets the honest gap is beyond what one mechanism gives; nothing where that was not judged."""
    beyond = [row["beyond"] for row in claims["one_mechanism"] if row["model"] == model and row["beyond"] is not None]
    if not beyond:
        return ""
    wider = "clearly wider than one mechanism would make it"
    if len(beyond) == 1:
        return f"; it is {wider}" if beyond[0] else f"; it is not {wider}"
    if not any(beyond):
        return f"; it is not {wider} on any dataset"
    return f"; it is {wider} on {sum(beyond)} of {len(beyond)} datasets"
