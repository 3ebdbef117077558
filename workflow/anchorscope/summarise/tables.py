"""One table per kind of estimate, with the rows of all models and datasets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from anchorscope.files.csv_file import write_csv
from anchorscope.files.frames import read_frame, write_frame
from anchorscope.files.sealed_parquet import made_from
from anchorscope.probe.examples import Pair, not_probed

TABLES = (
    "summary",
    "series",
    "kinds",
    "accounts",
    "told_apart",
    "strata",
    "forms",
    "label_errors",
    "deepest",
    "layers",
    "text",
)
FIRST = (
    *("model", "weights", "dataset", "source", "component", "position", "measure", "condition"),
    *("intervention", "stratum", "rule", "labels", "logits", "anchor", "layer", "reader"),
)


@dataclass(frozen=True)
class Coverage:
    """Every model with every dataset, and which of these pairs could be probed."""

    pairs: list[Pair]
    models: dict[str, dict]  # the manifest of each model
    paths: dict[str, dict | None]  # how each model was run
    not_probed: dict[Pair, str]  # why

    def probed(self) -> list[Pair]:
        return [pair for pair in self.pairs if pair not in self.not_probed]

    def files_of_probed(self, paths: Sequence[str]) -> dict[Pair, str]:
        """The files of the pairs that were probed, from one file for each of the first pairs, or of all."""
        files = zip(self.pairs[: len(paths)], paths, strict=True)
        return {pair: path for pair, path in files if pair not in self.not_probed}

    def first(self, count: int) -> "Coverage":
        """Only so many pairs."""
        pairs = self.pairs[:count]
        return Coverage(
            pairs,
            {model: self.models[model] for model, _ in pairs},
            {model: self.paths[model] for model, _ in pairs},
            {pair: why for pair, why in self.not_probed.items() if pair in pairs},
        )

    def metadata(self) -> dict[str, object]:
        """What the tables say in their metadata about models and missing pairs."""
        missing = [[*pair, why] for pair, why in self.not_probed.items()]
        return {"models": self.models, "paths": self.paths, "not_probed": missing}


def read_coverage(pairs: Sequence[Sequence[str]], estimates: Sequence[str]) -> Coverage:
    """Read from one file of estimates per pair whether it was probed. A run in which nothing was is an error."""
    files = {(model, dataset): path for (model, dataset), path in zip(pairs, estimates, strict=True)}
    missing, made = not_probed(files), {pair: made_from(path) for pair, path in files.items()}
    models = {model: origin["model"] for (model, _), origin in made.items()}
    paths: dict[str, dict | None] = {}
    for (model, _), origin in made.items():
        paths[model] = max(paths.get(model), origin["path"], key=_worth_saying)
    return Coverage(list(files), models, paths=paths, not_probed=missing)


def _worth_saying(path: dict | None) -> tuple[bool, bool, float]:
    """Of the ways in which a model was run on several datasets, the plain one is said, and the coarsest rounding."""
    return (path is not None, path is not None and path["name"] != "packed", (path or {}).get("moved") or 0.0)


def gather(
    coverage: Coverage, files: Mapping[str, Sequence[str]], sources: Mapping[str, str]
) -> dict[str, pl.DataFrame]:
    """Every table with the rows of all probed pairs, and with what a reader must know about each of them.

    `files` has one file per pair for each table (of texts, none for salmons), and `sources` says where each dataset
    comes from.
    """
    return {
        name: pl.concat(
            described(
                read_frame(path),
                model=model,
                weights=coverage.models[model]["weights"],
                dataset=dataset,
                source=sources[dataset],
            )
            for (model, dataset), path in coverage.files_of_probed(paths).items()
        )
        for name, paths in files.items()
    }


def described(table: pl.DataFrame, model: str, weights: str, dataset: str, source: str) -> pl.DataFrame:
    """A table that also says which model and questions its numbers come from; keys stand first."""
    texts = {"model": model, "weights": weights, "dataset": dataset, "source": source}
    named = table.with_columns(**{name: pl.lit(value, pl.String) for name, value in texts.items()})
    return named.select(*(name for name in FIRST if name in named.columns), pl.exclude(FIRST))


def write_tables(tables: Mapping[str, pl.DataFrame], outputs: Mapping[str, str], metadata: dict[str, str]) -> None:
    """Write each table as Parquet and as CSV."""
    for name, table in tables.items():
        write_frame(outputs[name], table, metadata)
        write_csv(outputs[f"{name}_csv"], table)
