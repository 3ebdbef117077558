"""A run's folder of results: where it is, what made the run, and what it found."""

import os
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import polars as pl

from anchorscope.files.arguments import is_path
from anchorscope.files.bundled import run_command
from anchorscope.files.faults import fault_of_file, reason_of, shortened
from anchorscope.files.frames import read_frame
from anchorscope.files.identity import read_json
from anchorscope.files.named import check_columns, read_named

RECORD = "provenance.json"
BEGUN = ("answers", "logs", "models", "questions", "raw")  # folders that a run makes early
SUMMARY_COLUMNS = (
    *("model", "dataset", "rule", "intervention", "labels", "logits", "anchor", "layer", "n", "delta_p", "low", "high"),
    *("weights", "source", "component", "position", "better_than_chance"),
)


def find_run(folder: Path | str) -> tuple[Path, dict[str, Any]]:
    """A run's folder of results, which `folder` is or holds, and the record of what made the run."""
    if not is_path(folder):
        raise ValueError(f"folder is {reprlib.repr(folder)}; it must be the path of a run's results.")
    places = (Path(folder), Path(folder, "results"))
    found = next((place for place in places if os.path.exists(place / RECORD)), None)
    if found is None:
        raise FileNotFoundError(_why_no_run(Path(folder)))
    try:
        record = read_json(found / RECORD)
        if not {"models", "datasets", "headline", "questions", "shard_size"} <= record["config"].keys():
            raise ValueError("its config is not a run's")
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        why = f"{shortened(found / RECORD)} does not describe a run ({reason_of(error)}); make it again."
        raise ValueError(why) from error
    return found, record


def _why_no_run(folder: Path) -> str:
    if not os.path.isdir(folder):
        return f"{shortened(folder)} is no folder; name the results of a run."
    for place in (folder, folder / "results"):
        if any((place / name).is_dir() for name in BEGUN):
            return (
                f"The run in {shortened(place)} is not finished: {RECORD} is missing; go on with `{run_command()}`, "
                "with the options of your run."
            )
    return f"{shortened(folder)} holds no run: {RECORD} is missing; `{run_command()}` makes a run in `results`."


def file_of_run(folder: Path, *parts: str) -> Path:
    """A file of the run; that it is not there is an error."""
    path = folder.joinpath(*parts)
    if fault := fault_of_file(path):
        raise FileNotFoundError(
            f"{path} {fault}: the run is not finished, or only a part of it is here; in the run's folder, "
            f"`{run_command(Path('results', *parts).as_posix())}` makes it, with the options of your run."
        )
    return path


def names_in_order(folder: Path, record: Mapping) -> dict[str, list[str]]:
    """Models and datasets of the config in the order of the summary; the record has them by alphabet."""
    named = {kind: list(record["config"][f"{kind}s"]) for kind in ("model", "dataset")}
    if (summary := folder / "summary.parquet").exists():
        shown = read_frame(summary, list(named))
        for kind, names in named.items():
            named[kind] = sorted(names, key=[*shown[kind].unique(maintain_order=True), *names].index)
    return named


def load_summary(path: Path | str = "results/summary.parquet") -> pl.DataFrame:
    """A run's summary: one row per model, dataset, component, position, intervention, rule, anchor and layer.

    A damaged file, or one that is no summary, is an error. workflow/schemas/tables.yaml describes the columns.
    """
    summary = read_named(path, "summary", such_as="results/summary.parquet")
    check_columns(summary, SUMMARY_COLUMNS, f"{path} is no summary")
    read = cast(pl.DataFrame, pl.from_arrow(summary))
    if "replicate" in read["rule"]:
        raise ValueError(
            f"{path} was made by an older version, which called the honest rule `replicate`; run the workflow again."
        )
    return read


def read_claims(folder: Path) -> dict[str, Any]:
    """The claims in words, by number, and the verdicts on them."""
    path = file_of_run(folder, "claims.json")
    try:
        return read_json(path)
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({reason_of(error)}); make it again.") from error
