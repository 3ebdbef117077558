"""A finished run as it is compared: its curves and claims, and what made them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from anchorscope.extract.axes import Headline
from anchorscope.files.faults import reason_of
from anchorscope.files.identity import canonical_json
from anchorscope.summarise.run_folder import file_of_run, find_run, load_summary, names_in_order, read_claims


@dataclass(frozen=True)
class ModelRun:
    """A model of a run: what it is, and how it was asked."""

    title: str
    hub: str | None  # its repository
    revision: str  # what fixes its weights
    weights: str  # trained or random
    layers: int
    prompt: str
    dtypes: tuple[str, ...]  # that its jobs computed with


@dataclass(frozen=True)
class DatasetRun:
    """A dataset of a run."""

    title: str
    layout: str  # whose questions it has
    questions: str  # what fixes them: the hash of a file, or repository and revision


@dataclass(frozen=True)
class FinishedRun:
    """What a run left in its folder of results."""

    summary: pl.DataFrame
    models: Mapping[str, ModelRun]
    datasets: Mapping[str, DatasetRun]
    headline: Headline
    settings: Mapping[str, object]  # the config's other keys
    code: Mapping[str, str]  # a fingerprint of each stage
    libraries: Mapping[str, str]  # their versions
    statements: Mapping[str, str]  # the claims in words, by number
    claims: list[dict]

    def curves(self, headline: Headline) -> pl.DataFrame:
        """The summary's rows of one component and position."""
        return self.summary.filter(**vars(headline))

    def layouts(self) -> dict[str, str]:
        return {name: dataset.layout for name, dataset in self.datasets.items()}


def read_finished(folder: Path | str) -> FinishedRun:
    """Read a run's folder of results, or the folder that holds it. What is missing or damaged is one sentence."""
    there, made = find_run(folder)
    found, names = read_claims(there), names_in_order(there, made)
    try:
        return FinishedRun(
            summary=load_summary(file_of_run(there, "summary.parquet")),
            models={name: _model(name, made) for name in names["model"]},
            datasets={name: _dataset(name, made) for name in names["dataset"]},
            headline=Headline(**made["config"]["headline"]),
            settings={key: value for key, value in made["config"].items() if key not in ("models", "datasets")},
            code=made["code"],
            libraries=made["libraries"],
            statements=found["statements"],
            claims=found["claims"],
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"claims.json or provenance.json in {there} lacks what a run writes there ({reason_of(error)}); "
            "run the workflow again."
        ) from error


def _model(name: str, made: Mapping) -> ModelRun:
    manifest, asked = made["models"][name], made["config"]["models"][name]
    prompt = asked.get("prompt", "auto")
    return ModelRun(
        title=asked["title"],
        hub=manifest["source"].get("hub"),
        revision=manifest["revision"],
        weights=manifest["weights"],
        layers=manifest["layers"],
        prompt=manifest["prompt"] if prompt == "auto" else prompt,
        dtypes=tuple(sorted({computed["dtype"] for computed in made["computed"].get(name, [])})),
    )


def _dataset(name: str, made: Mapping) -> DatasetRun:
    asked, origin = made["config"]["datasets"][name], made["datasets"][name]
    fixed = {key: value for key, value in origin.items() if key != "source"}  # a file may have been bundled elsewhere
    return DatasetRun(title=asked["title"], layout=asked["layout"], questions=canonical_json(fixed))
