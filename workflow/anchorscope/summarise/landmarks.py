"""What the published figures show, beside what this run measured."""

import polars as pl


def compare(landmark: dict, tolerance: float, flip: pl.DataFrame, layouts: dict[str, str]) -> dict:
    """A landmark of a model: published and measured range over the datasets, and whether they agree.

    `flip` holds the model's headline summary under that rule; `layouts` says whose questions a dataset has.
    """
    first, last = landmark["layers"]
    low, high = landmark["published"]
    rows = flip.filter(anchor=landmark["anchor"]).drop_nulls("delta_p")
    published = {"landmark": landmark["name"], "published_low": low, "published_high": high}
    if "deepest" in landmark:
        wanted = [name for name, layout in layouts.items() if layout == landmark["deepest"]]
        rows = rows.filter(pl.col("dataset").is_in(wanted)).sort("delta_p").head(1)
        inside = rows.filter(pl.col("layer").is_between(first, last))
    else:
        rows = inside = rows.filter(pl.col("layer").is_between(first, last))
    if rows.is_empty():
        return published | {"measured_low": None, "measured_high": None, "layers": None, "agrees": None}
    values, layers = rows["delta_p"].to_list(), rows["layer"].to_list()
    near = low - tolerance <= min(values) and max(values) <= high + tolerance
    return published | {
        "measured_low": min(values),
        "measured_high": max(values),
        "layers": f"{min(layers)}–{max(layers)}",
        "agrees": near and not inside.is_empty(),
    }
