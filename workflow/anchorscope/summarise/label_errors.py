"""How far the AUC and the honest gap would move if a few labels were wrong."""

from typing import Any

import numpy as np
import polars as pl

from anchorscope.extract.axes import EXACT, Headline
from anchorscope.probe.anchor_rules import HALF_A, SECOND_B
from anchorscope.probe.quality import auc
from anchorscope.summarise.bootstrap import Resamples
from anchorscope.summarise.curves import curves, series_row
from anchorscope.summarise.grouping import by_layer, group, read_place

REPORTED = ("auc", "auc_over_layers", "gap")
SCHEMA: dict[str, Any] = {
    **dict.fromkeys(("component", "position", "errors"), pl.String),
    **{"draw": pl.Int8, "n": pl.Int64, "turned": pl.Int64, "layer": pl.Int16},
    **{f"{name}{end}": pl.Float64 for name in REPORTED for end in ("", "_move")},
}


def label_errors(
    mislabelled: pl.DataFrame, delta: pl.DataFrame, layers: pl.DataFrame, headline: Headline
) -> pl.DataFrame:
    """What the headline would report with some labels turned, and how far that is from the labels as they are.

    One row per kind of errors and draw. Both are of the first repeat, the only one in which labels are turned.
    """
    layer = layers.filter("is_reference", **vars(headline))["layer"][0]
    as_they_are = delta.filter(intervention=EXACT, repeat=0, **vars(headline)).sort("layer", "id")
    labels, before = _labels(as_they_are), _reported(as_they_are, layer)
    rows = []
    for names, unit in mislabelled.sort("layer", "id").partition_by("errors", "draw", as_dict=True).items():
        turned, after = _labels(unit), _reported(unit, layer)
        row = dict(zip(("errors", "draw"), names, strict=True))
        row |= {"n": len(labels), "turned": int((turned != labels).sum()), "layer": layer, **vars(headline), **after}
        rows.append(row | {f"{name}_move": _less(after[name], before[name]) for name in REPORTED})
    return pl.DataFrame(rows, schema=SCHEMA).sort("errors", "draw")


def _labels(rows: pl.DataFrame) -> np.ndarray:
    return by_layer(rows, "hallucinated")[0, 0]


def _less(after: float | None, before: float | None) -> float | None:
    return None if after is None or before is None else after - before


def _reported(rows: pl.DataFrame, layer: int) -> dict[str, float | None]:
    """The AUC at the reference layer and its mean over layers, and the honest gap, if there is one, as its mean."""
    areas = auc(by_layer(rows, "logit_clean_full")[0], _labels(rows))
    honest = group(read_place({EXACT: rows}, (HALF_A, SECOND_B)), "replicate", EXACT, "measured")
    everyone_once = Resamples(np.ones((1, len(_labels(rows)))), np.zeros((1, 1)))
    gap = series_row(curves(honest, everyone_once)["gap"]).get("area")
    return {"auc": float(areas[layer]), "auc_over_layers": float(areas.mean()), "gap": gap}
