"""Finished runs whose curves are planted: the three files that a comparison reads, and nothing else."""

import json
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl

from anchorscope.files.frames import write_frame
from anchorscope.files.sealed_parquet import provenance
from anchorscope.summarise.claims import CLAIMS

LAYOUTS = {"popqa": "PopQA", "triviaqa": "TriviaQA", "hotpotqa": "HotpotQA", "nq": "NQ"}
DEPTHS = {"question": -40.0, "answer": -2.0}
HALF = 4.0  # points: half a 95 % interval
Curves = Callable[[str, str, str, int], np.ndarray]  # of a model, dataset, anchor and number of layers


def level(model: str, dataset: str, anchor: str, layers: int) -> np.ndarray:
    """The same in every layer."""
    return np.full(layers, DEPTHS[anchor])


def plant_run(
    folder: Path,
    layers: Mapping[str, int],
    curves: Curves = level,
    *,
    hubs: Mapping[str, str] | None = None,
    datasets: Mapping[str, str] = LAYOUTS,
    source: str = "hub",
    half: float = HALF,
    gap: float = -20.0,
    examples: int = 100,
    place: str = "answer_last",
    weights: str = "trained",
    config: Mapping[str, object] | None = None,
    revisions: Mapping[str, str] | None = None,
) -> Path:
    """Write a run of models (by their numbers of layers, and hub repositories) on datasets (by titles)."""
    folder.mkdir(parents=True, exist_ok=True)
    tables = [
        pl.DataFrame({"layer": np.arange(count, dtype=np.int16), "delta_p": curves(model, dataset, anchor, count)})
        .with_columns(low=pl.col("delta_p") - half, high=pl.col("delta_p") + half)
        .with_columns(model=pl.lit(model), dataset=pl.lit(dataset), anchor=pl.lit(anchor))
        for (model, count), dataset, anchor in product(layers.items(), datasets, DEPTHS)
    ]
    same = {"weights": weights, "source": source, "component": "resid", "position": place, "rule": "flip"}
    same |= {"intervention": "exact_question", "labels": "plotted", "logits": "measured"}
    more = {**same, "n": examples, "better_than_chance": True, "null": None, "null_low": None, "null_high": None}
    summary = pl.concat(tables).with_columns(pl.lit(value).alias(name) for name, value in more.items())
    write_frame(folder / "summary.parquet", summary, provenance(stage="summarise"))
    records = {"claims": _claims(layers, datasets, gap), "provenance": _made(layers, hubs or {}, datasets, weights)}
    records["provenance"]["config"] |= config or {}
    for name, revision in (revisions or {}).items():
        records["provenance"]["datasets"][name]["revision"] = revision
    for name, record in records.items():
        (folder / f"{name}.json").write_text(json.dumps(record), encoding="utf-8")
    return folder


def _claims(layers: Mapping[str, int], datasets: Mapping[str, str], gap: float) -> dict:
    said = {"claim": 1, "verdict": "supported", "because": None, "rule": "honest"}
    rows = [
        said | {"model": model, "dataset": dataset, "logits": logits, "effect": gap, "low": gap - 2, "high": gap + 2}
        for model, dataset, logits in product(layers, [*datasets, None], ("measured", "recentred"))
    ]
    return {"statements": {str(claim.number): claim.statement for claim in CLAIMS.values()}, "claims": rows}


def _made(layers: Mapping[str, int], hubs: Mapping[str, str], datasets: Mapping[str, str], weights: str) -> dict:
    models = {
        name: {"source": {"hub": hubs[name]} if name in hubs else {"path": name}, "revision": f"of {name}"}
        | {"weights": weights, "layers": count, "prompt": "few_shot"}
        for name, count in layers.items()
    }
    config = {
        "models": {name: {"title": hubs.get(name, name).split("/")[-1], "prompt": "auto"} for name in layers},
        "datasets": {name: {"title": title, "layout": name.split("-")[0]} for name, title in datasets.items()},
        "headline": {"component": "resid", "position": "answer_last"},
        **{"balance": True, "folds": 5, "questions": 4000, "shard_size": 4000, "seed": 0, "repeats": 3},
    }
    return {
        "config": config,
        "models": models,
        "datasets": {name: {"repo": f"owner/{name}", "split": "test", "revision": "0"} for name in datasets},
        "computed": {name: [{"dtype": "bfloat16"}] for name in layers},
        "code": {"extract": "0"},
        "libraries": {"torch": "2"},
    }
