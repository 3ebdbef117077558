"""How far each headline moves with another second prompt, beside its interval; and the same with fewer questions.

    python benchmarks/bench_second_prompt.py results

The finished run's answers stay as they are, and so do its activations under the first prompt. Under each of two other
second prompts (`second_prompts.json`) the same examples are extracted and probed again, which makes three pairs of
prompts. Each pair is measured on all questions, on halves and on quarters of them, no subject in two.

The honest gaps rest on both prompts of a pair. The gap of the published rule and the AUC, that of the best layer, rest
on one; here it is the second prompt of the pair, with probes of its own.
"""

import argparse
import tempfile
import time
from collections.abc import Iterable
from contextlib import chdir
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from bench_agreement import PASSES, areas, logits_of, parts, settings
from common import machine, report

from anchorscope.answer.prompts import Demonstrations, PromptSet
from anchorscope.extract.axes import EXACT, Headline
from anchorscope.extract.job import ExtractSettings, extract_file
from anchorscope.extract.store import ActivationReader, file_of
from anchorscope.files.identity import read_json
from anchorscope.files.sealed_parquet import made_from
from anchorscope.models.manifest import SALMON
from anchorscope.probe.delta import States
from anchorscope.probe.examples import TooFew, examples_of
from anchorscope.probe.quality import auc_with_interval

OTHERS = read_json(Path(__file__).with_name("second_prompts.json"))  # two second prompts by style
PAIRS = ("bundled", "other", "another")  # by their second prompt
HONEST = {
    "honest": ("honest", "measured"),
    "recentred": ("honest", "recentred"),
    "residual": ("honest", "residual"),
}
PUBLISHED = ("flip", "measured")
HEADLINES = ("published rule", *HONEST, "AUC")
PARTS = {"all": 1, "half": 2, "quarter": 4}  # of the questions


@dataclass(frozen=True)
class HeadlineValue:
    """A headline, and how wide its 95 % interval is."""

    value: float
    width: float


Measured = dict[str, HeadlineValue]  # by headline; nothing where the examples are too few


def pairs_of(dataset: Path, config: dict) -> tuple[list[dict], list[States]]:
    """The examples of one model on one dataset, and their states under each pair of prompts."""
    reader = ActivationReader(sorted(dataset.iterdir()))
    bundled = reader.read_passes(**config["headline"], passes=PASSES, layers=range(reader.layers))
    style = prompts_of(next(dataset.iterdir()), config).style
    others = [bundled | under_second(dataset, second, reader.keys, config) for second in OTHERS[style]]
    return reader.keys, [bundled, *others]


def prompts_of(shard: Path, config: dict) -> PromptSet:
    """The prompts under which a shard was extracted."""
    return PromptSet(**made_from(file_of(shard, **config["headline"]))["prompts"])


def under_second(dataset: Path, second: Demonstrations | str, keys: list[dict], config: dict) -> States:
    """The states of a dataset's examples under another second prompt."""
    results, (model, name) = dataset.parents[2], dataset.parts[-2:]
    with tempfile.TemporaryDirectory() as folder:
        for shard in sorted(dataset.iterdir()):
            prompts = prompts_of(shard, config)
            extract_file(
                results / "chosen" / model / name / f"{shard.name}.parquet",
                manifest=results / "models" / f"{model}.json",
                folder=Path(folder, shard.name),
                settings=extract_settings(replace(prompts, texts=prompts.texts | {"second": second}), model, config),
            )
        reader = ActivationReader(sorted(Path(folder).iterdir()))
        if reader.keys != keys:
            raise ValueError(f"{dataset} does not hold the examples that were chosen; run the workflow again.")
        passes = [run for run in PASSES if run[0] == "second"]
        return reader.read_passes(**config["headline"], passes=passes, layers=range(reader.layers))


def extract_settings(prompts: PromptSet, model: str, config: dict) -> ExtractSettings:
    """Those of the run, at the headline's place only."""
    return ExtractSettings(
        prompts=prompts,
        grid=Headline(**config["headline"]).grid(),
        dtype=config["models"][model]["dtype"],
        threads=torch.get_num_threads(),
        batch_tokens=config.get("batch_tokens"),
        knockout=EXACT,
        code="",
    )


def measure(states: States, keys: list[dict], chosen: np.ndarray, config: dict) -> Measured:
    """Every headline under one pair of prompts, from the chosen examples alone."""
    splits = {name: config[name] for name in ("folds", "repeats", "seed")}
    examples = examples_of([keys[index] for index in chosen], **splits, where=f"{len(chosen)} examples")
    if isinstance(examples, TooFew):
        return {}
    second = {("first", state): vectors for (prompt, state), vectors in states.items() if prompt == "second"}
    pair, alone = (logits_of(some, examples, chosen) for some in (states, second))
    drawn = {"clusters": examples.clusters, "bootstrap_draws": config["bootstrap_draws"]}
    found = areas(pair, **drawn, gaps=list(HONEST.values())) | areas(alone, **drawn, gaps=[PUBLISHED])
    ranked = auc_with_interval(alone.clean["full"], examples.hallucinated, examples.clusters)
    best = int(ranked["auc"].argmax())
    named = {"published rule": PUBLISHED, **HONEST}
    ends = {name: found[gap] for name, gap in named.items() if gap in found}
    ends["AUC"] = tuple(float(ranked[name][best]) for name in ("auc", "auc_low", "auc_high"))
    return {name: HeadlineValue(value, high - low) for name, (value, low, high) in ends.items()}


def averaged(datasets: Iterable[list[list[Measured]]]) -> list[list[Measured]]:
    """The mean over datasets, which are independent of each other, for each part and pair."""
    return [
        [mean_of(of_datasets) for of_datasets in zip(*of_part, strict=True)] for of_part in zip(*datasets, strict=True)
    ]


def mean_of(some: tuple[Measured, ...]) -> Measured:
    found = {}
    for name in HEADLINES:
        if all(name in measured for measured in some):
            values, widths = zip(*((measured[name].value, measured[name].width) for measured in some), strict=True)
            found[name] = HeadlineValue(float(np.mean(values)), float(np.linalg.norm(widths) / len(some)))
    return found


def row(measured: list[list[Measured]], headline: str) -> dict:
    """One headline by pair, how far pairs lie apart, and the interval's width: means over parts, SD root mean squared.

    Parts that are too small under any pair are left out.
    """
    known = [pairs for pairs in measured if all(headline in pair for pair in pairs)]
    if not known:
        return {"headline": headline, "parts": 0}
    values = np.array([[pair[headline].value for pair in pairs] for pairs in known])  # [parts, pairs]
    return {
        "headline": headline,
        "parts": len(known),
        **dict(zip(PAIRS, values.mean(0).tolist(), strict=True)),
        "spread": float(np.ptp(values, axis=1).mean()),
        "SD": float(np.sqrt(values.var(1, ddof=1).mean())),
        "width": float(np.mean([pair[headline].width for pairs in known for pair in pairs])),
    }


def measured_by_size(dataset: Path, config: dict) -> dict[str, list[list[Measured]]]:
    """Every headline of one model on one dataset, by size of the parts, part and pair."""
    keys, pairs = pairs_of(dataset, config)
    found = {}
    for size, count in PARTS.items():
        part_of = parts(keys, count, config["seed"])
        chosen = [np.flatnonzero(part_of == part) for part in range(count)]
        found[size] = [[measure(states, keys, some, config) for states in pairs] for some in chosen]
    return found


def rows_of(folder: Path, config: dict) -> list[dict]:
    """One row per model, dataset, size of the parts and headline; and those of all datasets together."""
    rows = []
    for model in sorted(path for path in (folder / "activations").iterdir() if not path.name.endswith(SALMON)):
        found = {dataset.name: measured_by_size(dataset, config) for dataset in sorted(model.iterdir())}
        found["mean over sets"] = {size: averaged(of[size] for of in found.values()) for size in PARTS}
        rows += [
            {"model": model.name, "dataset": dataset, "questions": size, **row(sizes[size], headline)}
            for dataset, sizes in found.items()
            for size in PARTS
            for headline in HEADLINES
        ]
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="the results folder of a finished run")
    parser.add_argument("--record", type=Path, help="write the results to this JSON file")
    options = parser.parse_args()
    if not (options.results / "provenance.json").is_file():
        parser.error(f"{options.results} has no provenance.json, so it is not the results folder of a finished run")
    began = time.perf_counter()
    with chdir(options.results.resolve().parent):  # a manifest's paths begin there
        rows = rows_of(Path(options.results.name), settings(Path(options.results.name)))
    report(rows, {"seconds": round(time.perf_counter() - began), **machine()}, options.record)
