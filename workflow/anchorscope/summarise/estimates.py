"""All estimates of one model on one dataset, from its delta and layers tables."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace

import numpy as np
import polars as pl

from anchorscope.extract.axes import Headline
from anchorscope.probe.anchor_rules import ROLES, role_columns
from anchorscope.summarise.bootstrap import interval, resample
from anchorscope.summarise.curves import ANCHORS, Curve, curves, layer_rows, roles, series_row
from anchorscope.summarise.headline import at_headline
from anchorscope.summarise.one_mechanism import simulate_flip, simulate_replicate
from anchorscope.summarise.two_kinds import KINDS, kinds

UNIT = ["component", "position", "intervention"]
NULL_DRAWS = 400  # simulations behind the band of one mechanism
POPULARITY = ("unpopular", "middling", "popular")
SERIES = ("area", "deepest_layer", "deepest", "of_flip", "area_null")


@dataclass(frozen=True)
class Estimates:
    summary: pl.DataFrame  # one row a component, position, intervention, rule, anchor and layer
    series: pl.DataFrame  # one row a component, position, intervention, rule and anchor
    kinds: pl.DataFrame  # one row a component and position
    strata: pl.DataFrame  # the headline's summary for parts of the examples
    deepest: pl.DataFrame  # the headline's examples at its deepest layer, one row an intervention and example
    resampled: pl.DataFrame  # the headline's curves in every resample, for contrasts between runs

    def tables(self) -> dict[str, pl.DataFrame]:
        """By the name of each table's file."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def no_estimates(empty: pl.DataFrame) -> Estimates:
    """Where nothing was probed, every table is the same empty one."""
    return Estimates(**{field.name: empty for field in fields(Estimates)})


def estimate(
    delta: pl.DataFrame, layers: pl.DataFrame, headline: Headline, draws: int, seed: int, threads: int = 1
) -> Estimates:
    """Everything that is said of one model on one dataset."""
    delta = delta.sort(*UNIT, "layer", "id")
    weights = resample(_examples(delta)["cluster"].to_list(), draws, seed)
    units = delta.partition_by(UNIT, as_dict=True, maintain_order=True)
    with ThreadPoolExecutor(threads) as pool:
        parts = list(pool.map(lambda unit: _unit(*unit, layers, headline, weights, seed), units.items()))
    series = pl.concat(part.series for part in parts)
    return Estimates(
        summary=with_auc(pl.concat((part.summary for part in parts), how="diagonal"), layers),
        series=series,
        kinds=pl.concat(part.kinds for part in parts if part.kinds is not None),
        strata=pl.concat(part.strata for part in parts if part.strata is not None),
        deepest=deepest_examples(delta, series, layers, headline),
        resampled=pl.concat(part.resampled for part in parts if part.resampled is not None),
    )


@dataclass(frozen=True)
class _Part:
    """What one component, position and intervention adds to each table."""

    summary: pl.DataFrame
    series: pl.DataFrame
    kinds: pl.DataFrame | None = None
    strata: pl.DataFrame | None = None
    resampled: pl.DataFrame | None = None


def _unit(
    names: tuple[str, str, str],
    unit: pl.DataFrame,
    layers: pl.DataFrame,
    headline: Headline,
    weights: np.ndarray,
    seed: int,
) -> _Part:
    component, position, intervention = names
    place = {"component": component, "position": position}
    under = {**place, "intervention": intervention}
    by_rule = {rule: curves(roles(unit, rule), weights) for rule in ROLES}
    reference = layers.filter(pl.col("is_reference")).filter(**place)["layer"][0]
    measured = intervention == "exact_question"
    null = one_mechanism(unit, reference, seed) if measured else {}
    part = _Part(_with(_layer_table(by_rule, null), under), _with(_series_table(by_rule, null), under))
    if measured:
        at_reference = unit.filter(pl.col("layer") == reference)
        row = {**place, "reference_layer": reference, **_kinds(at_reference, weights, seed)}
        part = replace(part, kinds=pl.DataFrame([row], schema_overrides=dict.fromkeys(KINDS, pl.Float64)))
    if Headline(component, position) == headline:
        strata = _with(_strata_table(unit, weights), under)
        part = replace(part, strata=strata, resampled=_with(_resampled_table(by_rule), {"intervention": intervention}))
    return part


def _examples(delta: pl.DataFrame) -> pl.DataFrame:
    """One row an example, in the order of every unit and layer."""
    first = delta.row(0, named=True)
    return delta.filter(**{name: first[name] for name in [*UNIT, "layer"]})


def _with(table: pl.DataFrame, values: dict[str, str]) -> pl.DataFrame:
    return table.with_columns(**{name: pl.lit(value) for name, value in values.items()})


def _layer_table(by_rule: dict[str, dict[str, Curve]], null: dict[str, dict[str, np.ndarray]]) -> pl.DataFrame:
    """Every anchor's curve under every rule, with what one mechanism would show of it where that is known."""
    tables = []
    for rule, by_anchor in by_rule.items():
        for anchor in ANCHORS:
            table = _with(layer_rows(by_anchor[anchor]), {"rule": rule, "anchor": anchor})
            if anchor in null.get(rule, {}):
                table = table.with_columns(**band(null[rule][anchor]))
            tables.append(table)
    return pl.concat(tables, how="diagonal")


def one_mechanism(unit: pl.DataFrame, reference: int, seed: int) -> dict[str, dict[str, np.ndarray]]:
    """By rule and anchor the group means [draws, layers] that one mechanism gives."""
    layers = unit["layer"].n_unique()

    def logits(state: str, probe: str) -> np.ndarray:
        return unit[f"logit_{state}_{probe}"].cast(pl.Float64).to_numpy().reshape(layers, -1)

    both = (np.stack([logits(state, prompt) for prompt in ("first", "second")]) for state in ("clean", "ko"))
    return {
        "flip": simulate_flip(logits("clean", "full"), logits("ko", "full"), NULL_DRAWS, seed),
        "replicate": simulate_replicate(*both, reference, NULL_DRAWS, seed),
    }


def band(means: np.ndarray) -> dict[str, pl.Series]:
    """Median and central 95 % of simulated means [draws, layers]."""
    often = np.isfinite(means).mean(0) > 0.5  # a group that one mechanism hardly ever fills has no band
    low, high = interval(means)
    middle = [
        np.median(column[np.isfinite(column)]) if ok else np.nan for column, ok in zip(means.T, often, strict=True)
    ]
    values = {"null": middle, "null_low": low, "null_high": high}
    return {name: pl.Series(np.where(often, value, np.nan)).fill_nan(None) for name, value in values.items()}


def _series_table(by_rule: dict[str, dict[str, Curve]], null: dict[str, dict[str, np.ndarray]]) -> pl.DataFrame:
    """Area and deepest layer of every curve; the gap's area also as a share of that under `flip`.

    With what one mechanism would give for the area where that is known.
    """
    columns = {name: pl.Float64 for value in SERIES for name in (value, f"{value}_low", f"{value}_high")}
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
    """Median and central 95 % of the area of simulated means [draws, layers], over the layers that the curve has."""
    if means is None or not (curve.fewest >= 2).any():
        return {}
    known = means[:, curve.fewest >= 2]
    whole = np.isfinite(known).all(1)
    if whole.mean() <= 0.5:  # groups that one mechanism hardly ever fills in every layer
        return {}
    low, middle, high = np.quantile(known[whole].mean(1), [0.025, 0.5, 0.975])
    return {"area_null": float(middle), "area_null_low": float(low), "area_null_high": float(high)}


def _kinds(at_reference: pl.DataFrame, weights: np.ndarray, seed: int) -> dict:
    """Both prompts at the reference layer; the first role of `replicate` labels under the first prompt and measures
    under the second, its second role the other way round."""
    (first_label, second_delta), (second_label, first_delta) = role_columns("replicate")

    def both(first: str, second: str) -> np.ndarray:
        return np.stack([at_reference[name].to_numpy() for name in (first, second)])

    return kinds(
        both(first_label, second_label),
        both(first_delta, second_delta).astype(np.float64),
        both("logit_clean_first", "logit_clean_second").astype(np.float64),
        both("logit_ko_first", "logit_ko_second").astype(np.float64),
        weights,
        seed,
    )


def _strata_table(unit: pl.DataFrame, weights: np.ndarray) -> pl.DataFrame:
    """The curves of right and of hallucinated answers, and of each third by popularity where it is known."""
    examples = _examples(unit)
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
            pairs = [(anchored[:, mask], delta[:, mask]) for anchored, delta in roles(unit, rule)]
            for anchor, curve in curves(pairs, weights[:, mask]).items():
                tables.append(_with(layer_rows(curve), {"stratum": stratum, "rule": rule, "anchor": anchor}))
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
        .filter(layer=lowest)
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


def _resampled_table(by_rule: dict[str, dict[str, Curve]]) -> pl.DataFrame:
    """One row a rule, anchor and draw: delta P of all layers."""
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
