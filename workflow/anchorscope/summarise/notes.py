"""What a reader must know about numbers and figures: which model and questions they come from."""

from collections.abc import Iterator, Mapping

import polars as pl

COARSE = 0.05  # of a state: where rounding moves it further, that is said
FIRST = (
    *("model", "weights", "dataset", "source", "component", "position", "measure", "condition"),
    *("intervention", "stratum", "rule", "labels", "logits", "anchor", "layer", "reader"),
)


def described(table: pl.DataFrame, model: str, weights: str, dataset: str, source: str) -> pl.DataFrame:
    """A table that also says which model and questions its numbers come from; keys stand first."""
    texts = {"model": model, "weights": weights, "dataset": dataset, "source": source}
    named = table.with_columns(**{name: pl.lit(value, pl.String) for name, value in texts.items()})
    return named.select(*(name for name in FIRST if name in named.columns), pl.exclude(FIRST))


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
        f"{titles[model]} on {datasets[dataset]}" for model, dataset, _ in made["not_probed"] if model in titles
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
