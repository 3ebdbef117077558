"""The comparison of methods for all models and datasets, and what carries over from one dataset to another."""

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from anchorscope.detect.compare import compare, pathways
from anchorscope.detect.curves import coverage, reliability
from anchorscope.detect.names import OTHERS
from anchorscope.detect.scored import scored_of
from anchorscope.files.frames import read_frame
from anchorscope.probe.probed import NOT_PROBED, Pair, not_probed
from anchorscope.summarise.notes import described

COMPARED = {"detection": compare, "reliability": reliability, "coverage": coverage, "pathways": pathways}


@dataclass(frozen=True)
class Run:
    """What the tables say about models and datasets: manifests of models, sources and layouts of datasets, by name."""

    models: Mapping[str, dict]
    sources: Mapping[str, str]
    layouts: Mapping[str, str]
    published: Mapping[str, Mapping[str, Mapping[str, float]]]  # AUC by hub repository, method and layout


def gather_detection(
    files: Mapping[Pair, str], transfers: Mapping[str, str], run: Run
) -> tuple[dict[str, pl.DataFrame], dict[str, object]]:
    """Every table of all pairs that were probed, and what their metadata say of models and of pairs left out.

    `files` has the scores of each pair, `transfers` the areas of each model between datasets.
    """
    missing = not_probed(files)
    probed = {pair: path for pair, path in files.items() if pair not in missing}
    scored = {pair: scored_of(read_frame(path), where=" on ".join(pair)) for pair, path in probed.items()}
    tables = {
        name: pl.concat(
            described(make(own), model, run.models[model]["weights"], dataset, run.sources[dataset])
            for (model, dataset), own in scored.items()
        )
        for name, make in COMPARED.items()
    }
    tables["detection"] = with_published(tables["detection"], run)
    tables["transfer"] = gather_transfer({model: transfers[model] for model, _ in probed}, tables["detection"], run)
    return tables, {"models": dict(run.models), NOT_PROBED: [[*pair, why] for pair, why in missing.items()]}


def with_published(detection: pl.DataFrame, run: Run) -> pl.DataFrame:
    """The table with the published AUC beside the run's, for the published models on the published questions."""

    def published(row: dict) -> float | None:
        if row["source"] == "bundled":
            return None
        methods = run.published.get(run.models[row["model"]]["source"].get("hub", ""), {})
        return methods.get(row["method"], {}).get(run.layouts[row["dataset"]])

    values = [published(row) for row in detection.select("model", "dataset", "source", "method").iter_rows(named=True)]
    return detection.with_columns(pl.Series("published", values, pl.Float64))


def gather_transfer(files: Mapping[str, str], detection: pl.DataFrame, run: Run) -> pl.DataFrame:
    """The areas between datasets of every model, and those at home, with what a reader must know about each."""
    first = ("model", "weights", "dataset", "source")
    elsewhere = pl.concat(
        read_frame(path)
        .with_columns(
            model=pl.lit(model),
            weights=pl.lit(run.models[model]["weights"]),
            source=pl.col("dataset").replace_strict(run.sources, return_dtype=pl.String),
        )
        .select(*first, pl.exclude(first))
        for model, path in files.items()
    )
    home = detection.with_columns(trained_on=pl.col("dataset"), left_out=pl.lit(0, pl.Int64)).select(elsewhere.columns)
    return pl.concat([home, elsewhere])


def carried_over(transfer: pl.DataFrame) -> pl.DataFrame:
    """One row per model and method: its mean AUC at home, on datasets it never saw, and how much is lost on the way.

    `elsewhere` is the mean over pairs of a dataset it was trained on and another one, `others` over datasets tested
    after training on all others, null where there is only one other. A model with one dataset, or with datasets that
    share too much to learn from one for another, has no row: there is nothing to carry over.
    """
    keys = ["model", "method"]
    joint, home = pl.col("trained_on") == OTHERS, pl.col("trained_on") == pl.col("dataset")
    means = transfer.group_by(keys, maintain_order=True).agg(
        home=pl.col("auc").filter(home).mean(),
        elsewhere=pl.col("auc").filter(~joint & ~home).mean(),
        others=pl.col("auc").filter(joint).mean(),
    )
    return means.drop_nulls("elsewhere").with_columns(drop=pl.col("home") - pl.col("elsewhere"))
