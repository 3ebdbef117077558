"""All tables of one model on one dataset, from its delta and layers tables, and how far wrong labels move them."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import polars as pl

from anchorscope.extract.axes import Headline
from anchorscope.probe.anchor_rules import FULL, HALF_A, HONEST, ROLES, SECOND_B
from anchorscope.probe.quality import auc, delta_p, sigmoid
from anchorscope.summarise.bootstrap import SETS_AT_ONCE, Resamples, known_mean, quantiles, resample
from anchorscope.summarise.curves import (
    QUANTITIES,
    Curve,
    ReferenceLayers,
    curve_rows,
    curves,
    curves_labelled_at,
    reference_curves,
    reference_layers,
    series_row,
    with_names,
)
from anchorscope.summarise.grouping import (
    LABELLED_UNDER,
    LOGITS,
    PlaceLogits,
    both_prompts,
    by_layer,
    group,
    mean_logits,
    read_place,
    read_places,
)
from anchorscope.summarise.one_mechanism import AGREEMENT, SHAPE, agreement, shape, simulate
from anchorscope.summarise.parts import forms_table, strata_table

NULL_SIMULATIONS = 400  # behind the band of one mechanism
BAND = {"null": 0.5, "null_low": 0.025, "null_high": 0.975}  # of the simulations: columns and quantiles
SIMULATED = {"flip": (FULL,), HONEST: (HALF_A, SECOND_B)}  # rules, with the probes of each prompt that are simulated
LAYERS_AT_ONCE = 2 * SETS_AT_ONCE - 1  # reference layers whose curves are one task; with everyone, two products
PLOTTED, REFERENCE = "plotted", "reference"  # where an example is labelled
SERIES = ("area", "area_logit", "deepest_layer", "deepest", "of_flip", "area_null")
ERRORS_SCHEMA: dict[str, Any] = {
    **dict.fromkeys(("component", "position", "errors"), pl.String),
    **{"draw": pl.Int8, "n": pl.Int64, "turned": pl.Int64, "layer": pl.Int16},
    **{f"{name}{end}": pl.Float64 for name in ("auc", "auc_over_layers", "gap") for end in ("", "_move")},
}
# What a curve is of (rule, labels, logits and anchor), the curve, and group means [simulations, layers] under one
# mechanism.
Found = tuple[dict[str, str], Curve, np.ndarray | None]


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


@dataclass(frozen=True)
class _Look:
    """One rule and kind of logits of a unit: its curves, while several threads compute them."""

    rule: str
    logits: str
    simulated: Future[dict[str, np.ndarray]]
    plotted: Future[dict[str, Curve]]
    at_reference: list[Future[list[dict[str, Curve]]]]  # labelled at some of the reference layers each

    @classmethod
    def begin(
        cls, unit: _Unit, rule: str, logits: str, resamples: Resamples, seed: int, pool: ThreadPoolExecutor
    ) -> "_Look":
        simulated = pool.submit(_one_mechanism, unit, rule, logits, seed)
        plotted = pool.submit(_plotted, unit, rule, logits, resamples)
        at_reference = []
        if unit.reference and rule != "flip" and logits == "measured":
            used, results = unit.reference.used, group(unit.place, rule, unit.intervention, logits)
            for layers in np.split(used, range(LAYERS_AT_ONCE, len(used), LAYERS_AT_ONCE)):
                at_reference.append(pool.submit(curves_labelled_at, results, resamples, layers))
        return cls(rule, logits, simulated, plotted, at_reference)

    def found(self, reference: ReferenceLayers) -> Iterator[Found]:
        for anchor, curve in self.plotted.result().items():
            yield self._names(PLOTTED, anchor), curve, self.simulated.result().get(anchor)
        if self.at_reference:
            by_layer = [curves for layers in self.at_reference for curves in layers.result()]
            for anchor, curve in reference_curves(by_layer, reference).items():
                yield self._names(REFERENCE, anchor), curve, None

    def _names(self, labels: str, anchor: str) -> dict[str, str]:
        return {"rule": self.rule, "labels": labels, "logits": self.logits, "anchor": anchor}


def summary_tables(
    delta: pl.DataFrame, layers: pl.DataFrame, headline: Headline, *, bootstrap_draws: int, seed: int, threads: int = 1
) -> dict[str, pl.DataFrame]:
    """Everything that is said about one model on one dataset: its tables, by the names of their files.

    | table | one row per |
    |---|---|
    | summary | component, position, intervention, rule, labels, logits, anchor and layer |
    | series | the same without layers |
    | kinds | component, position and logits |
    | strata | as the headline's summary, for parts of the examples |
    | forms | form of question and answer: the headline's gap, and how many of each group have it |
    | deepest | intervention and example, at the headline's deepest layer |
    | resampled | resample of the headline's honest curves, for contrasts between runs |
    """
    delta = delta.sort("component", "position", "intervention", "repeat", "layer", "id")
    places = {Headline(*names): place for names, place in read_places(delta).items()}
    examples = delta.head(places[headline].folds.shape[1])  # one row of each, in the order of every unit and layer
    resamples = resample(examples["cluster"].to_list(), len(places[headline].folds), bootstrap_draws, seed)
    shown = delta.filter(**vars(headline))
    with ThreadPoolExecutor(threads) as pool:
        clean = places[headline].clean[FULL.name]
        best = reference_layers(clean, examples["hallucinated"].to_numpy(), resamples, pool)
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
        looks = [
            [_Look.begin(unit, *look, resamples, seed, pool) for look in product(ROLES, unit.logits)] for unit in units
        ]
        kinds = pool.map(lambda at: _kinds(at, places[at], layers, resamples, seed), places)
        strata = strata_table(shown, places[headline], resamples, pool)
        forms = forms_table(examples, places[headline], resamples, pool)
        found = [[curve for look in of_unit for curve in look.found(best)] for of_unit in looks]
        summary, series, resampled = zip(*map(_tables, units, found), strict=True)
    return {
        "summary": with_auc(pl.concat(summary, how="diagonal"), layers),
        "series": pl.concat(series),
        "kinds": pl.concat(kinds),
        "strata": with_names(strata, vars(headline)),
        "forms": with_names(forms, vars(headline)),
        "deepest": deepest_examples(shown, pl.concat(series), layers, headline),
        "resampled": pl.concat(
            table for unit, table in zip(units, resampled, strict=True) if unit.headline == headline
        ),
    }


def _tables(unit: _Unit, found: list[Found]) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """The summary, the series and the resampled curves of one unit."""
    tables = [curve_rows(curve, **names).with_columns(**band(means)) for names, curve, means in found]
    return (
        with_names(pl.concat(tables, how="diagonal"), unit.names),
        with_names(_series_table(found), unit.names),
        _resampled_table(found, unit.intervention),
    )


def _plotted(unit: _Unit, rule: str, logits: str, resamples: Resamples) -> dict[str, Curve]:
    """The curves with labels at the layer that is plotted. Those of `fixed` are at reference layers only."""
    results = group(unit.place, rule, unit.intervention, logits) if rule != "fixed" else []
    return curves(results, resamples) if results else {}


def _one_mechanism(unit: _Unit, rule: str, logits: str, seed: int) -> dict[str, np.ndarray]:
    """The group means that one mechanism gives, for the knockout that labels."""
    if unit.intervention != LABELLED_UNDER or rule not in SIMULATED:
        return {}
    clean = np.stack([unit.place.clean[probe.name] for probe in SIMULATED[rule]])
    changed = np.stack([unit.place.changed[probe.name, LABELLED_UNDER] for probe in SIMULATED[rule]])
    return simulate(clean, changed, rule, logits, simulations=NULL_SIMULATIONS, seed=seed)


def band(means: np.ndarray | None) -> dict[str, pl.Series]:
    """Median and central 95 % of simulated means [simulations, layers]."""
    if means is None:
        return {}
    often = np.isfinite(means).mean(0) > 0.5  # a group that one mechanism hardly ever fills has no band
    values = zip(BAND, quantiles(means, *BAND.values()), strict=True)
    return {name: pl.Series(np.where(often, value, np.nan)).fill_nan(None) for name, value in values}


def _series_table(found: list[Found]) -> pl.DataFrame:
    """Area and deepest layer of every curve, and the gap's area as a share of that under `flip`.

    Beside the area, what one mechanism would give where that is known.
    """
    columns: dict[str, Any] = {
        **{f"{value}{end}": pl.Float64 for value in SERIES for end in ("", "_low", "_high")},
        **dict.fromkeys(("rule", "labels", "logits", "anchor"), pl.String),
        "deepest_layer": pl.Int16,
    }
    published = {"rule": "flip", "labels": PLOTTED, "logits": "measured", "anchor": "gap"}
    flip = next(curve for names, curve, _ in found if names == published)
    rows = [
        names | series_row(curve, flip if names["anchor"] == "gap" else None) | null_area(curve, means)
        for names, curve, means in found
    ]
    return pl.DataFrame(rows, schema=columns)


def null_area(curve: Curve, means: np.ndarray | None) -> dict[str, float | None]:
    """Median and central 95 % of the area of simulated means [simulations, layers], over the layers of the curve.

    As for the curve itself, a simulated run's area is the mean over those layers in which both groups have examples.
    """
    if means is None or not (curve.fewest >= 2).any():
        return {}
    areas = known_mean(means[:, np.isfinite(curve.delta_p.mean)].T)
    return {f"area_{name}": value[0] for name, value in band(areas[:, None]).items()}


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
    there = delta.filter(layer=lowest)
    forms = there.select("id", "question_form").unique()
    rows = mean_logits(there).join(forms, on="id", how="left", maintain_order="left")
    clean, changed = (rows[f"logit_{state}_full"].cast(pl.Float64).to_numpy() for state in ("clean", "ko"))
    flipped = rows.filter(
        (pl.col("logit_clean_full") >= 0) != (pl.col("logit_ko_full") >= 0), intervention=LABELLED_UNDER
    )
    return rows.select(
        *("intervention", "layer", "id", "question_form", "hallucinated"),
        p_clean=pl.Series(sigmoid(clean), dtype=pl.Float32),
        p_ko=pl.Series(sigmoid(changed), dtype=pl.Float32),
        delta_p=pl.Series(delta_p(clean, changed), dtype=pl.Float32),
        question_anchored=pl.col("id").is_in(flipped["id"].implode()),
        **{f"logit_{state}_first": f"logit_{state}_half_a" for state in ("clean", "ko")},
        **{f"logit_{state}_second": f"logit_{state}_second_b" for state in ("clean", "ko")},
    )


def _resampled_table(found: list[Found], intervention: str) -> pl.DataFrame:
    """One row per kind of logits, anchor and resample: the change in all layers, under the honest rule."""
    tables = (
        pl.DataFrame(
            {"draw": np.arange(len(curve.delta_p.resampled), dtype=np.int32)}
            | {name: getattr(curve, name).resampled.astype(np.float32) for name in QUANTITIES}
        ).with_columns(
            logits=pl.lit(names["logits"]), anchor=pl.lit(names["anchor"]), intervention=pl.lit(intervention)
        )
        for names, curve, _ in found
        if (names["rule"], names["labels"]) == (HONEST, PLOTTED)
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


def label_errors(
    mislabelled: pl.DataFrame, delta: pl.DataFrame, layers: pl.DataFrame, headline: Headline
) -> pl.DataFrame:
    """What the headline would report with some labels turned, and how far that is from the labels as they are.

    One row per kind of errors and draw. Both are of the first repeat, the only one in which labels are turned.
    """
    layer = layers.filter("is_reference", **vars(headline))["layer"][0]
    as_they_are = delta.filter(intervention=LABELLED_UNDER, repeat=0, **vars(headline)).sort("layer", "id")
    labels, before = _labels(as_they_are), _reported(as_they_are, layer)
    rows = []
    for (errors, draw), unit in mislabelled.sort("layer", "id").partition_by("errors", "draw", as_dict=True).items():
        turned, after = _labels(unit), _reported(unit, layer)
        about = {"errors": errors, "draw": draw, "n": len(labels), "turned": int((turned != labels).sum())}
        moves = {f"{name}_move": now - before[name] for name, now in after.items() if name in before}
        rows.append({**about, "layer": layer, **vars(headline), **after, **moves})
    return pl.DataFrame(rows, schema=ERRORS_SCHEMA).sort("errors", "draw")


def _labels(rows: pl.DataFrame) -> np.ndarray:
    return by_layer(rows, "hallucinated")[0, 0]


def _reported(rows: pl.DataFrame, layer: int) -> dict[str, float]:
    """The AUC at the reference layer and its mean over layers, and the honest gap, if there is one, as its mean."""
    areas = auc(by_layer(rows, "logit_clean_full")[0], _labels(rows))
    honest = group(read_place({LABELLED_UNDER: rows}, (HALF_A, SECOND_B)), HONEST, LABELLED_UNDER, "measured")
    everyone_once = Resamples(np.ones((1, len(_labels(rows)))), np.zeros((1, 1)))
    whole = series_row(curves(honest, everyone_once)["gap"])
    gap = {"gap": whole["area"]} if whole else {}
    return {"auc": float(areas[layer]), "auc_over_layers": float(areas.mean()), **gap}
