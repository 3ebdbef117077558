"""Numbers and notes as pages and figures write them."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import polars as pl

MINUS = "−"
COARSE = 0.05  # of a state: where rounding moves it further, that is said


def plain(value: float, decimals: int = 1) -> str:
    """A number."""
    return f"{value:.{decimals}f}".replace("-", MINUS)


def signed(value: float, decimals: int = 1) -> str:
    """A number with its sign."""
    return f"{value:+.{decimals}f}".replace("-", MINUS)


Number = Callable[[float, int], str]  # `plain` or `signed`


def number_text(value: object) -> str:
    """A value as a reader wants it: numbers to one decimal place, nothing as a dash."""
    if value is None:
        return "–"
    return plain(value) if isinstance(value, float) else str(value)


def between(low: float | None, high: float | None, decimals: int = 1, number: Number = plain) -> str:
    """An interval."""
    return "–" if low is None or high is None else f"{number(low, decimals)} … {number(high, decimals)}"


signed_between = partial(between, number=signed)


def with_interval(
    value: float | None, low: float | None, high: float | None, decimals: int = 1, number: Number = plain
) -> str | None:
    """A number with its interval; nothing where there is no number."""
    return None if value is None else f"{number(value, decimals)} ({between(low, high, decimals, number)})"


def with_ends(row: Mapping, name: str, decimals: int, number: Number = plain) -> str | None:
    """A column of a row with its interval; nothing where it has no value."""
    return with_interval(row[name], row[f"{name}_low"], row[f"{name}_high"], decimals, number)


def notes(summary: pl.DataFrame, models: Mapping[str, str], datasets: Mapping[str, str]) -> Iterator[str]:
    """Sentences on bundled questions and random weights, where some models and datasets have them.

    Models and datasets are names and titles; the summary says which of them the sentences concern.
    """
    shown = summary.filter(pl.col("model").is_in(list(models)), pl.col("dataset").is_in(list(datasets)))
    bundled, random = (
        [title for name, title in titles.items() if name in set(shown.filter(**condition)[column])]
        for column, titles, condition in (
            ("dataset", datasets, {"source": "bundled"}),
            ("model", models, {"weights": "random"}),
        )
    )
    if bundled:
        yield f"{', '.join(bundled)}: questions bundled with Anchorscope, not the published datasets."
    if random:
        yield f"{', '.join(random)}: random weights; their numbers mean nothing about trained models."


def mark_random(models: Mapping[str, str], weights: Mapping[str, str]) -> dict[str, str]:
    """Models by name and title, in which the titles of models with random weights say so."""
    return {
        name: f"{title} (random weights)" if weights.get(name) == "random" else title for name, title in models.items()
    }


def unprobed(made: Mapping, models: Mapping[str, str], datasets: Mapping[str, str]) -> str:
    """A sentence that names which models, on which datasets, the summary could not include; empty where it has all.

    `made` is the summary's metadata.
    """
    titles = mark_random(models, {name: manifest["weights"] for name, manifest in made["models"].items()})
    left_out = [
        f"{titles[model]} on {datasets[dataset]}"
        for model, dataset, _ in made["not_probed"]
        if model in titles and dataset in datasets
    ]
    return f"Not probed, because the answers are too few or too one-sided: {', '.join(left_out)}." if left_out else ""


def plain_paths(made: Mapping, models: Mapping[str, str]) -> Iterator[str]:
    """A sentence for each model that was not run in packs, or that has layers without attention.

    `made` is the summary's metadata.
    """
    for name, path in made["paths"].items():
        if path is None or path["name"] == "packed" or name not in models:
            continue
        why = f": {path['reason']}" if path["reason"] else ""
        layers = ", ".join(map(str, path["without_attention"]))
        uncut = f" Layers {layers} have no attention: nothing is cut in them." if layers else ""
        yield f"{models[name]}: run on the plain path, in padded batches through its own attention{why}.{uncut}"


def coarse_roundings(made: Mapping, models: Mapping[str, str]) -> list[str]:
    """A sentence for each model whose states half precision moves far. `made` is the summary's metadata."""
    return [
        f"{models[name]}: rounding to {path['dtype']} moves its states by {100 * path['moved']:.0f} % (middle layer, "
        "against float32). Numbers would be others in another order of summation; `dtype: float32` is recommended."
        for name, path in made["paths"].items()
        if path is not None and name in models and path["moved"] is not None and path["moved"] > COARSE
    ]
