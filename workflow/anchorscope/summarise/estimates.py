"""All estimates of one model on one dataset, from its delta and layers tables."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import polars as pl

from anchorscope.extract.axes import Headline
from anchorscope.probe.anchor_rules import ROLES, RoleResult, role_columns
from anchorscope.summarise.bootstrap import interval, resample
from anchorscope.summarise.curves import ANCHORS, Curve, curve_rows, curves, read_role_results, series_row
from anchorscope.summarise.headline import at_headline
from anchorscope.summarise.one_mechanism import simulate_flip, simulate_replicate
from anchorscope.summarise.two_kinds import TWO_KINDS, BothPrompts, two_kinds

UNIT = ["component", "position", "intervention"]
NULL_DRAWS = 400  # simulations behind the band of one mechanism
POPULARITY = ("unpopular", "middling", "popular")
SERIES = ("area", "deepest_layer", "deepest", "of_flip", "area_null")
Curves = dict[str, dict[str, Curve]]  # by rule and anchor
Simulated = dict[str, dict[str, np.ndarray]]  # by rule and anchor, group means [draws, layers] under one mechanism


@dataclass(frozen=True)
class Estimates:
    """The tables of one model on one dataset."""

    summary: pl.DataFrame  # one row per component, position, intervention, rule, anchor and layer
    series: pl.DataFrame  # one row per component, position, intervention, rule and anchor
    two_kinds: pl.DataFrame  # one row per component and position
    strata: pl.DataFrame  # the headline's summary for parts of the examples
    deepest: pl.DataFrame  # the headline's examples at its deepest layer, one row per intervention and example
    resampled: pl.DataFrame  # the headline's curves in every resample, for contrasts between runs

    def tables(self) -> dict[str, pl.DataFrame]:
        """By the name of each table's file."""
        return {
            "summary": self.summary,
            "series": self.series,
            "kinds": self.two_kinds,
            "strata": self.strata,
            "deepest": self.deepest,
            "resampled": self.resampled,
        }


def no_estimates(empty: pl.DataFrame) -> Estimates:
    """Where nothing was probed, every table is the same empty one."""
    return Estimates(**{field.name: empty for field in fields(Estimates)})


def estimate(
    delta: pl.DataFrame, layers: pl.DataFrame, headline: Headline, *, draws: int, seed: int, threads: int = 1
) -> Estimates:
    """Everything that is said about one model on one dataset."""
    delta = delta.sort(*UNIT, "layer", "id")
    weights = resample(_examples(delta)["cluster"].to_list(), draws, seed)
    units = _units(delta, layers)
    with ThreadPoolExecutor(threads) as pool:
        parts = list(pool.map(lambda unit: _part(unit, headline=headline, weights=weights, seed=seed), units))
    series = pl.concat(part.series for part in parts)
    return Estimates(
        summary=with_auc(pl.concat((part.summary for part in parts), how="diagonal"), layers),
        series=series,
        two_kinds=pl.concat(part.two_kinds for part in parts if part.two_kinds is not None),
        strata=pl.concat(part.strata for part in parts if part.strata is not None),
        deepest=deepest_examples(delta, series=series, layers=layers, headline=headline),
        resampled=pl.concat(part.resampled for part in parts if part.resampled is not None),
    )


@dataclass(frozen=True)
class _Unit:
    """One component, position and intervention."""

    component: str
    position: str
    intervention: str
    delta: pl.DataFrame  # its rows of the delta table, sorted by layer and id, where it cut something
    measured: np.ndarray  # boolean [examples], where it cut something
    reference: int  # the layer whose clean probe ranks best

    def logits(self, state: str, probe: str) -> np.ndarray:
        """Logits [layers, examples]."""
        layers = self.delta["layer"].n_unique()
        return self.delta[f"logit_{state}_{probe}"].cast(pl.Float64).to_numpy().reshape(layers, -1)


@dataclass(frozen=True)
class _Part:
    """What one unit adds to each table."""

    summary: pl.DataFrame
    series: pl.DataFrame
    two_kinds: pl.DataFrame | None = None
    strata: pl.DataFrame | None = None
    resampled: pl.DataFrame | None = None


def _units(delta: pl.DataFrame, layers: pl.DataFrame) -> list[_Unit]:
    units = []
    for names, rows in delta.partition_by(UNIT, as_dict=True, maintain_order=True).items():
        component, position, intervention = names
        reference = layers.filter("is_reference", component=component, position=position)["layer"][0]
        units.append(
            _Unit(
                component=component,
                position=position,
                intervention=intervention,
                delta=rows.filter(pl.col("p_ko").is_not_null()),
                measured=_examples(rows)["p_ko"].is_not_null().to_numpy(),
                reference=reference,
            )
        )
    return units


def _part(unit: _Unit, headline: Headline, weights: np.ndarray, seed: int) -> _Part:
    place = {"component": unit.component, "position": unit.position}
    names = {**place, "intervention": unit.intervention}
    weights = weights[:, unit.measured]
    by_rule = {rule: curves(read_role_results(unit.delta, rule), weights) for rule in ROLES}
    is_knockout = unit.intervention == "exact_question"
    null = one_mechanism(unit, seed) if is_knockout else {}
    part = _Part(_with(_summary_table(by_rule, null), names), _with(_series_table(by_rule, null), names))
    if is_knockout:
        row = {**place, "reference_layer": unit.reference, **two_kinds(_both_prompts(unit), weights, seed)}
        table = pl.DataFrame([row], schema_overrides=dict.fromkeys(TWO_KINDS, pl.Float64))
        part = replace(part, two_kinds=table)
    if Headline(**place) == headline:
        strata = _with(_strata_table(unit.delta, weights), names)
        resampled = _with(_resampled_table(by_rule), {"intervention": unit.intervention})
        part = replace(part, strata=strata, resampled=resampled)
    return part


def _examples(delta: pl.DataFrame) -> pl.DataFrame:
    """One row per example, in the order that every unit and layer has."""
    first = delta.row(0, named=True)
    return delta.filter(**{name: first[name] for name in [*UNIT, "layer"]})


def _with(table: pl.DataFrame, values: dict[str, str]) -> pl.DataFrame:
    return table.with_columns(**{name: pl.lit(value) for name, value in values.items()})


def _summary_table(by_rule: Curves, null: Simulated) -> pl.DataFrame:
    """Every anchor's curve under every rule, beside what one mechanism would show where that is known."""
    tables = []
    for rule, by_anchor in by_rule.items():
        for anchor in ANCHORS:
            table = _with(curve_rows(by_anchor[anchor]), {"rule": rule, "anchor": anchor})
            if anchor in null.get(rule, {}):
                table = table.with_columns(**band(null[rule][anchor]))
            tables.append(table)
    return pl.concat(tables, how="diagonal")


def one_mechanism(unit: _Unit, seed: int) -> Simulated:
    """The group means that one mechanism gives."""
    flip = simulate_flip(
        clean=unit.logits("clean", "full"), changed=unit.logits("ko", "full"), draws=NULL_DRAWS, seed=seed
    )
    clean, changed = (
        np.stack([unit.logits(state, prompt) for prompt in ("first", "second")]) for state in ("clean", "ko")
    )
    replicate = simulate_replicate(clean, changed, reference=unit.reference, draws=NULL_DRAWS, seed=seed)
    return {"flip": flip, "replicate": replicate}


def band(means: np.ndarray) -> dict[str, pl.Series]:
    """Median and central 95 % of simulated means [draws, layers]."""
    known = np.isfinite(means)
    often = known.mean(0) > 0.5  # a group that one mechanism hardly ever fills has no band
    low, high = interval(means)
    middle = np.full(len(often), np.nan)
    for layer in np.flatnonzero(often):
        middle[layer] = np.median(means[known[:, layer], layer])
    values = {"null": middle, "null_low": low, "null_high": high}
    return {name: pl.Series(np.where(often, value, np.nan)).fill_nan(None) for name, value in values.items()}


def _series_table(by_rule: Curves, null: Simulated) -> pl.DataFrame:
    """Area and deepest layer of every curve, and the gap's area as a share of that under `flip`.

    Beside the area, what one mechanism would give where that is known.
    """
    columns: dict[str, Any] = {f"{value}{end}": pl.Float64 for value in SERIES for end in ("", "_low", "_high")}
    columns |= {"rule": pl.String, "anchor": pl.String, "deepest_layer": pl.Int16}
    rows = [
        {"rule": rule, "anchor": anchor}
        | series_row(curve, by_rule["flip"]["gap"] if anchor == "gap" else None)
        | null_area(curve, null.get(rule, {}).get(anchor))
        for rule, by_anchor in by_rule.items()
        for anchor, curve in by_anchor.items()
    ]
    return pl.DataFrame(rows, schema=columns)


def null_area(curve: Curve, means: np.ndarray | None) -> dict[str, float]:
    """Median and central 95 % of the area of simulated means [draws, layers], over the layers of the curve."""
    if means is None or not (curve.fewest >= 2).any():
        return {}
    known = means[:, curve.fewest >= 2]
    whole = np.isfinite(known).all(1)
    if whole.mean() <= 0.5:  # groups that one mechanism hardly ever fills in every layer
        return {}
    low, middle, high = np.quantile(known[whole].mean(1), [0.025, 0.5, 0.975])
    return {"area_null": float(middle), "area_null_low": float(low), "area_null_high": float(high)}


def _both_prompts(unit: _Unit) -> BothPrompts:
    """Both prompts at the reference layer.

    The first role of `replicate` labels under the first prompt and measures under the second, its second role the other
    way round.
    """
    at_reference = unit.delta.filter(layer=unit.reference)
    (first_label, second_delta), (second_label, first_delta) = role_columns("replicate")

    def both(first: str, second: str) -> np.ndarray:
        return np.stack([at_reference[name].to_numpy() for name in (first, second)])

    return BothPrompts(
        question_anchored=both(first_label, second_label),
        delta_p=both(first_delta, second_delta).astype(np.float64),
        clean=both("logit_clean_first", "logit_clean_second").astype(np.float64),
        changed=both("logit_ko_first", "logit_ko_second").astype(np.float64),
    )


def _strata_table(delta: pl.DataFrame, weights: np.ndarray) -> pl.DataFrame:
    """The curves of right and of hallucinated answers, and of each third by popularity where that is known."""
    examples = _examples(delta)
    parts = {"right": ~examples["hallucinated"].to_numpy(), "hallucinated": examples["hallucinated"].to_numpy()}
    known = examples["popularity"].to_numpy().astype(np.float64)
    if np.isfinite(known).sum() >= len(POPULARITY):
        edges = np.nanquantile(known, [1 / 3, 2 / 3])
        third = np.where(np.isfinite(known), np.searchsorted(edges, known, "left"), -1)
        parts |= {name: third == number for number, name in enumerate(POPULARITY)}
    tables = []
    for stratum, mask in parts.items():
        if not mask.any():
            continue
        for rule in ROLES:
            results = [
                RoleResult(result.question_anchored[:, mask], result.delta_p[:, mask])
                for result in read_role_results(delta, rule)
            ]
            for anchor, curve in curves(results, weights[:, mask]).items():
                tables.append(_with(curve_rows(curve), {"stratum": stratum, "rule": rule, "anchor": anchor}))
    return pl.concat(tables)


def deepest_examples(
    delta: pl.DataFrame, series: pl.DataFrame, layers: pl.DataFrame, headline: Headline
) -> pl.DataFrame:
    """The headline's examples at the layer where the Question-Anchored mean under `flip` is lowest.

    At the reference layer where there is no such mean.
    """
    curve = at_headline(series, headline).filter(intervention="exact_question", rule="flip", anchor="question")
    lowest = curve["deepest_layer"][0]
    if lowest is None:
        lowest = at_headline(layers, headline).filter("is_reference")["layer"][0]
    return (
        at_headline(delta, headline)
        .filter(pl.col("p_ko").is_not_null(), layer=lowest)
        .select(
            "intervention",
            "layer",
            "id",
            "hallucinated",
            "p_clean",
            "p_ko",
            "delta_p",
            question_anchored="question_anchored_flip",
        )
    )


def _resampled_table(by_rule: Curves) -> pl.DataFrame:
    """One row per rule, anchor and draw: delta P of all layers."""
    return pl.concat(
        pl.DataFrame(
            {
                "draw": np.arange(len(curve.resampled), dtype=np.int32),
                "delta_p": curve.resampled.astype(np.float32),
            }
        ).with_columns(rule=pl.lit(rule), anchor=pl.lit(anchor))
        for rule, by_anchor in by_rule.items()
        for anchor, curve in by_anchor.items()
        if rule in ("flip", "replicate")
    )


def with_auc(table: pl.DataFrame, layers: pl.DataFrame) -> pl.DataFrame:
    """Add how well the layer's probe ranks all examples, clean and under the row's intervention."""
    keys = ["component", "position", "layer"]
    clean = layers.filter(pl.col("intervention") == "clean").select(*keys, "better_than_chance", auc_clean="auc")
    changed = layers.select(*keys, "intervention", auc_intervened="auc")
    return table.join(clean, on=keys, how="left", maintain_order="left").join(
        changed, on=[*keys, "intervention"], how="left", maintain_order="left"
    )
