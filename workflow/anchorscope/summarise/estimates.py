"""All estimates of one model on one dataset, from its delta and layers tables."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import polars as pl

from anchorscope.extract.axes import Headline
from anchorscope.probe.anchor_rules import FULL, HALF_A, ROLES, SECOND_B
from anchorscope.probe.quality import delta_p, sigmoid
from anchorscope.summarise.bootstrap import Resamples, interval, resample
from anchorscope.summarise.curves import ANCHORS, QUANTITIES, Curve, curve_rows, curves, known_mean, series_row
from anchorscope.summarise.forms import forms_table
from anchorscope.summarise.grouping import LABELLED_UNDER, PlaceLogits, both_prompts, group, read_places
from anchorscope.summarise.one_mechanism import simulate
from anchorscope.summarise.push import LOGITS
from anchorscope.summarise.reference import ReferenceLayers, reference_curves, reference_layers
from anchorscope.summarise.strata import strata_table
from anchorscope.summarise.two_kinds import AGREEMENT, SHAPE, agreement, shape

NULL_DRAWS = 400  # simulations behind the band of one mechanism
SIMULATED = ("flip", "replicate")  # rules that are simulated
HONEST = "replicate"
PLOTTED, REFERENCE = "plotted", "reference"  # where an example is labelled
SERIES = ("area", "area_logit", "deepest_layer", "deepest", "of_flip", "area_null")
Key = tuple[str, str, str]  # a rule, where it labels, and which logits
Curves = dict[Key, dict[str, Curve]]  # by anchor
Simulated = dict[Key, dict[str, np.ndarray]]  # by anchor, group means [draws, layers] under one mechanism


@dataclass(frozen=True)
class Estimates:
    """The tables of one model on one dataset, by the names of their files."""

    summary: pl.DataFrame  # one row per component, position, intervention, rule, labels, logits, anchor and layer
    series: pl.DataFrame  # the same without layers
    kinds: pl.DataFrame  # one row per component, position and logits
    strata: pl.DataFrame  # the headline's summary for parts of the examples
    forms: pl.DataFrame  # the headline's gap by form of question and answer, and how many of each group have it
    deepest: pl.DataFrame  # the headline's examples at its deepest layer, one row per intervention and example
    resampled: pl.DataFrame  # the headline's honest curves in every resample, for contrasts between runs


@dataclass(frozen=True)
class _Unit:
    """One component, position and intervention."""

    headline: Headline
    intervention: str
    place: PlaceLogits
    logits: tuple[str, ...]  # the kinds of logits that are looked at
    reference: ReferenceLayers | None  # for the headline's knockout only

    @property
    def names(self) -> dict[str, str]:
        return {**vars(self.headline), "intervention": self.intervention}


def estimate(
    delta: pl.DataFrame, layers: pl.DataFrame, headline: Headline, *, draws: int, seed: int, threads: int = 1
) -> Estimates:
    """Everything that is said about one model on one dataset."""
    delta = delta.sort("component", "position", "intervention", "repeat", "layer", "id")
    places = {Headline(*names): place for names, place in read_places(delta).items()}
    examples = _examples(delta)
    resamples = resample(examples["cluster"].to_list(), len(places[headline].folds), draws, seed)
    best = reference_layers(places[headline].clean[FULL.name], examples["hallucinated"].to_numpy(), resamples)
    units = [
        _Unit(
            headline=at,
            intervention=intervention,
            place=place,
            logits=LOGITS if at == headline else LOGITS[:1],
            reference=best if (at, intervention) == (headline, LABELLED_UNDER) else None,
        )
        for at, place in places.items()
        for intervention in place.interventions
    ]
    shown = delta.filter(**vars(headline))
    with ThreadPoolExecutor(threads) as pool:
        by_unit = pool.map(lambda unit: _tables(unit, resamples, seed), units)
        kinds = pool.map(lambda at: _kinds(at, places[at], layers, resamples, seed), places)
        strata = pool.submit(strata_table, shown, places[headline], resamples)
        forms = pool.submit(forms_table, examples, places[headline], resamples)
        summary, series, resampled = zip(*by_unit, strict=True)
    return Estimates(
        summary=with_auc(pl.concat(summary, how="diagonal"), layers),
        series=pl.concat(series),
        kinds=pl.concat(kinds),
        strata=_with(strata.result(), vars(headline)),
        forms=_with(forms.result(), vars(headline)),
        deepest=deepest_examples(shown, pl.concat(series), layers, headline),
        resampled=pl.concat(table for unit, table in zip(units, resampled, strict=True) if unit.headline == headline),
    )


def _examples(delta: pl.DataFrame) -> pl.DataFrame:
    """One row per example, in the order that every unit and layer has."""
    first = delta.row(0, named=True)
    keys = ("component", "position", "intervention", "repeat", "layer")
    return delta.filter(**{name: first[name] for name in keys})


def _tables(unit: _Unit, resamples: Resamples, seed: int) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """The summary, the series and the resampled curves of one unit."""
    found, null = _curves(unit, resamples), _one_mechanism(unit, seed)
    return (
        _with(_summary_table(found, null), unit.names),
        _with(_series_table(found, null), unit.names),
        _resampled_table(found, unit.intervention),
    )


def _curves(unit: _Unit, resamples: Resamples) -> Curves:
    """Every rule; at the headline with every kind of logits, and for its knockout with labels at reference layers."""
    found: Curves = {}
    for rule, logits in product(ROLES, unit.logits):
        results = group(unit.place, rule, unit.intervention, logits)
        if rule != "fixed" and results:
            found[rule, PLOTTED, logits] = curves(results, resamples)
        if rule != "flip" and results and unit.reference and logits == "measured":
            found[rule, REFERENCE, logits] = reference_curves(results, resamples, unit.reference)
    return found


def _one_mechanism(unit: _Unit, seed: int) -> Simulated:
    """The group means that one mechanism gives, for the knockout that labels."""
    place, intervention = unit.place, unit.intervention
    if intervention != LABELLED_UNDER:
        return {}
    probes = {"flip": (FULL,), "replicate": (HALF_A, SECOND_B)}
    found = {}
    for rule, logits in product(SIMULATED, unit.logits):
        clean = np.stack([place.clean[probe.name] for probe in probes[rule]])
        changed = np.stack([place.changed[probe.name, intervention] for probe in probes[rule]])
        found[rule, PLOTTED, logits] = simulate(clean, changed, rule, logits, draws=NULL_DRAWS, seed=seed)
    return found


def _with(table: pl.DataFrame, values: dict[str, str]) -> pl.DataFrame:
    return table.with_columns(**{name: pl.lit(value) for name, value in values.items()})


def _named(key: Key, anchor: str) -> dict[str, str]:
    return {**dict(zip(("rule", "labels", "logits"), key, strict=True)), "anchor": anchor}


def _summary_table(by_key: Curves, null: Simulated) -> pl.DataFrame:
    """Every anchor's curve under every rule, beside what one mechanism would show where that is known."""
    tables = []
    for key, by_anchor in by_key.items():
        for anchor in ANCHORS:
            table = _with(curve_rows(by_anchor[anchor]), _named(key, anchor))
            if anchor in null.get(key, {}):
                table = table.with_columns(**band(null[key][anchor]))
            tables.append(table)
    return pl.concat(tables, how="diagonal")


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


def _series_table(by_key: Curves, null: Simulated) -> pl.DataFrame:
    """Area and deepest layer of every curve, and the gap's area as a share of that under `flip`.

    Beside the area, what one mechanism would give where that is known.
    """
    columns: dict[str, Any] = {f"{value}{end}": pl.Float64 for value in SERIES for end in ("", "_low", "_high")}
    columns |= dict.fromkeys(("rule", "labels", "logits", "anchor"), pl.String) | {"deepest_layer": pl.Int16}
    flip = by_key["flip", PLOTTED, "measured"]["gap"]
    rows = [
        _named(key, anchor)
        | series_row(curve, flip if anchor == "gap" else None)
        | null_area(curve, null.get(key, {}).get(anchor))
        for key, by_anchor in by_key.items()
        for anchor, curve in by_anchor.items()
    ]
    return pl.DataFrame(rows, schema=columns)


def null_area(curve: Curve, means: np.ndarray | None) -> dict[str, float]:
    """Median and central 95 % of the area of simulated means [draws, layers], over the layers of the curve.

    As for the curve itself, a simulated run's area is the mean over those layers in which both groups have examples.
    """
    if means is None or not (curve.fewest >= 2).any():
        return {}
    areas = known_mean(means[:, np.isfinite(curve.delta_p.mean)].T)
    known = np.isfinite(areas)
    if known.mean() <= 0.5:  # groups that one mechanism hardly ever fills
        return {}
    low, middle, high = np.quantile(areas[known], [0.025, 0.5, 0.975])
    return {"area_null": float(middle), "area_null_low": float(low), "area_null_high": float(high)}


def _kinds(at: Headline, place: PlaceLogits, layers: pl.DataFrame, resamples: Resamples, seed: int) -> pl.DataFrame:
    """Agreement of the two prompts at the reference layer, with each kind of logits; and the shape of the shifts."""
    layer = layers.filter("is_reference", **vars(at))["layer"][0]
    clean, changed = both_prompts(place)
    shared = {**vars(at), "reference_layer": layer, "n": clean.shape[2]}
    humps = shape(clean[:, layer], changed[:, layer], seed)
    rows = [
        {
            **shared,
            "logits": logits,
            **agreement(group(place, HONEST, LABELLED_UNDER, logits), layer, resamples),
            **humps,
        }
        for logits in LOGITS
    ]
    return pl.DataFrame(rows, schema_overrides=dict.fromkeys((*AGREEMENT, *SHAPE), pl.Float64))


def deepest_examples(
    delta: pl.DataFrame, series: pl.DataFrame, layers: pl.DataFrame, headline: Headline
) -> pl.DataFrame:
    """The headline's examples at the layer where the Question-Anchored mean under `flip` is lowest.

    At the reference layer where there is no such mean. Logits are averaged over repeats. `delta` has the headline's
    rows.
    """
    wanted = {"intervention": LABELLED_UNDER, "rule": "flip", "logits": "measured", "anchor": "question"}
    lowest = series.filter(**wanted, **vars(headline))["deepest_layer"][0]
    if lowest is None:
        lowest = layers.filter("is_reference", **vars(headline))["layer"][0]
    logits = [name for name in delta.columns if name.startswith("logit_")]
    rows = (
        delta.filter(pl.col("p_ko").is_not_null(), layer=lowest)
        .group_by("intervention", "layer", "id", maintain_order=True)
        .agg(pl.first("hallucinated"), pl.col(logits).mean())
    )
    clean, changed = (rows[f"logit_{state}_full"].cast(pl.Float64).to_numpy() for state in ("clean", "ko"))
    return rows.select(
        *("intervention", "layer", "id", "hallucinated"),
        p_clean=pl.Series(sigmoid(clean), dtype=pl.Float32),
        p_ko=pl.Series(sigmoid(changed), dtype=pl.Float32),
        delta_p=pl.Series(delta_p(clean, changed), dtype=pl.Float32),
        question_anchored=pl.col("id").is_in(_flipped(rows)),
        **{f"logit_{state}_first": f"logit_{state}_half_a" for state in ("clean", "ko")},
        **{f"logit_{state}_second": f"logit_{state}_second_b" for state in ("clean", "ko")},
    )


def _flipped(rows: pl.DataFrame) -> list[str]:
    """The examples whose verdict the knockout changes."""
    cut = rows.filter(intervention=LABELLED_UNDER)
    return cut.filter((pl.col("logit_clean_full") >= 0) != (pl.col("logit_ko_full") >= 0))["id"].to_list()


def _resampled_table(by_key: Curves, intervention: str) -> pl.DataFrame:
    """One row per kind of logits, anchor and draw: the change in all layers, under the honest rule."""
    tables = (
        pl.DataFrame(
            {"draw": np.arange(len(curve.delta_p.resampled), dtype=np.int32)}
            | {name: getattr(curve, name).resampled.astype(np.float32) for name in QUANTITIES}
        ).with_columns(logits=pl.lit(logits), anchor=pl.lit(anchor), intervention=pl.lit(intervention))
        for (rule, labels, logits), by_anchor in by_key.items()
        for anchor, curve in by_anchor.items()
        if rule == HONEST and labels == PLOTTED
    )
    return pl.concat(tables)


def with_auc(table: pl.DataFrame, layers: pl.DataFrame) -> pl.DataFrame:
    """Add how well the layer's probe ranks all examples, clean and under the row's intervention."""
    keys = ["component", "position", "layer"]
    clean = layers.filter(pl.col("intervention") == "clean").select(*keys, "better_than_chance", auc_clean="auc")
    changed = layers.select(*keys, "intervention", auc_intervened="auc")
    return table.join(clean, on=keys, how="left", maintain_order="left").join(
        changed, on=[*keys, "intervention"], how="left", maintain_order="left"
    )
