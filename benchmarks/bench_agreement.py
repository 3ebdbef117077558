"""How often the interval of one estimate holds another estimate of the same thing: the gap's mean over layers.

  folds      the same examples, with folds and halves of other seeds
  questions  two halves of the questions, no subject in both, split several times
  runs       several results folders, for example one in float32 and one in bfloat16; tables are enough

    python benchmarks/bench_agreement.py results              folds and questions
    python benchmarks/bench_agreement.py results other        runs

With folds of other seeds nearly every interval should hold the other estimate: the questions are the same. Two
independent estimates with the same error are apart by less than 1.96 of it in 83 % of cases. So that is what intervals
of 95 % come to between halves of the questions.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import numpy as np
import torch
from common import machine, report

from anchorscope.extract.axes import EXACT
from anchorscope.extract.store import ActivationReader
from anchorscope.probe.anchor_rules import PROBES
from anchorscope.probe.examples import Examples, assign_folds, examples_of
from anchorscope.probe.scores import cross_fit_scores
from anchorscope.summarise.bootstrap import resample
from anchorscope.summarise.curves import curves, series_row
from anchorscope.summarise.grouping import LOGITS, PlaceLogits, group

PASSES = [(prompt, state) for prompt in ("first", "second") for state in ("clean", EXACT)]
GAPS = [("flip", "measured"), *(("honest", logits) for logits in LOGITS)]  # rules and logits
FOLD_SEEDS = (0, 50_000, 90_000)
SPLITS = 2  # of the questions into halves
EXPECTED = {"folds": "nearly all", "questions": "0.83", "runs": "nearly all"}
Area = tuple[float, float, float]  # and both ends of its interval
Areas = dict[tuple[str, str], Area]  # by rule and logits


def logits_of(states: dict[tuple[str, str], torch.Tensor], examples: Examples, chosen: np.ndarray) -> PlaceLogits:
    """Out-of-fold logits of the examples that are `chosen` among those of states [layers, examples, width]."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    some = {run: vectors[:, chosen].to(device) for run, vectors in states.items()}
    scores = [
        cross_fit_scores(
            some,
            hallucinated=torch.from_numpy(examples.hallucinated).to(device),
            folds=torch.from_numpy(split.folds).to(device),
            halves=torch.from_numpy(split.halves).to(device),
            shuffled=torch.from_numpy(split.shuffled).to(device),
        )
        for split in examples.splits
    ]
    probes = [probe for probe in PROBES if (probe, "clean") in scores[0].logits]
    return PlaceLogits(
        clean={probe.name: np.stack([each.logits[probe, "clean"].numpy() for each in scores]) for probe in probes},
        changed={
            (probe.name, EXACT): np.stack([each.logits[probe, EXACT].numpy() for each in scores]) for probe in probes
        },
        folds=np.stack([split.folds for split in examples.splits]),
    )


def areas(place: PlaceLogits, clusters: list[str], bootstrap_draws: int, gaps: list[tuple[str, str]] = GAPS) -> Areas:
    """The gap's area under each rule and with each kind of logits, where both groups have examples enough."""
    resamples = resample(clusters, len(place.folds), bootstrap_draws, seed=0)
    found = {}
    for rule, logits in gaps:
        row = series_row(curves(group(place, rule, EXACT, logits), resamples)["gap"])
        if "area" in row:
            found[rule, logits] = (row["area"], row["area_low"], row["area_high"])
    return found


@dataclass(frozen=True)
class Finished:
    """The activations of one model on one dataset."""

    keys: list[dict]
    states: dict[tuple[str, str], torch.Tensor]  # by pass: [layers, examples, width]
    config: dict

    def areas_of(self, chosen: np.ndarray, seed: int) -> Areas:
        """The areas from some of the examples alone."""
        keys = [self.keys[index] for index in chosen]
        config = self.config
        examples = examples_of(keys, config["folds"], repeats=config["repeats"], seed=seed, where=str(len(chosen)))
        return areas(logits_of(self.states, examples, chosen), examples.clusters, config["bootstrap_draws"])


def measured_again(folder: Path, config: dict) -> Iterator[tuple[str, str, list[Areas]]]:
    """Model and dataset, what differs, and the areas of each of the sets that differ in it."""
    for dataset in sorted((folder / "activations").glob("*/*")):
        reader = ActivationReader(sorted(dataset.iterdir()))
        states = reader.read_passes(**config["headline"], passes=PASSES, layers=range(reader.layers))
        finished = Finished(reader.keys, states, config)
        name = f"{dataset.parent.name} {dataset.name}"
        everyone = np.arange(len(reader.keys))
        yield name, "folds", [finished.areas_of(everyone, seed) for seed in FOLD_SEEDS]
        for split in range(SPLITS):
            half = parts(reader.keys, 2, split)
            yield (
                name,
                "questions",
                [finished.areas_of(np.flatnonzero(half == side), config["seed"]) for side in (0, 1)],
            )


def parts(keys: list[dict], count: int, seed: int) -> np.ndarray:
    """Which of so many parts of the questions each example belongs to, [examples]; no subject is in two."""
    ids = [key["id"] for key in keys]
    clusters = [key["subject"] or key["id"] for key in keys]
    wrong = np.array([not key["right"] for key in keys])
    return assign_folds(ids, groups=clusters, labels=wrong, folds=count, seed=seed)


def between_runs(folders: list[Path]) -> Iterator[tuple[str, str, list[Areas]]]:
    """The same for the models and datasets that finished runs have in common."""
    tables = [by_dataset(folder) for folder in folders]
    for name in (name for name in tables[0] if all(name in table for table in tables)):
        yield name, "runs", [table[name] for table in tables]


def by_dataset(folder: Path) -> dict[str, Areas]:
    """The gaps that a finished run judges, by model and dataset."""
    found: dict[str, Areas] = {}
    for row in json.loads((folder / "claims.json").read_text(encoding="utf-8"))["claims"]:
        if row["claim"] == 1 and row["dataset"] and row["effect"] is not None:
            area = (row["effect"], row["low"], row["high"])
            found.setdefault(f"{row['model']} {row['dataset']}", {})[row["rule"], row["logits"]] = area
    return found


def settings(folder: Path) -> dict:
    return json.loads((folder / "provenance.json").read_text(encoding="utf-8"))["config"]


def held(sets: list[list[Areas]], gap: tuple[str, str]) -> list[bool]:
    """Whether the interval of one holds the estimate of the other, for every ordered pair within a set."""
    return [
        one[gap][1] <= other[gap][0] <= one[gap][2]
        for some in sets
        for one, other in permutations([areas for areas in some if gap in areas], 2)
    ]


def rows_of(found: list[tuple[str, str, list[Areas]]]) -> list[dict]:
    """One row per model and dataset, what differs, rule and logits; and one for all datasets together."""
    rows = []
    for differs in dict.fromkeys(differs for _, differs, _ in found):
        names = list(dict.fromkeys(name for name, other, _ in found if other == differs))
        for name, gap in [(name, gap) for name in [*names, "all"] for gap in GAPS]:
            sets = [some for mine, other, some in found if other == differs and name in ("all", mine)]
            pairs = held(sets, gap)
            if not pairs:
                continue
            shown = sets[0][:2] if name != "all" else [{}, {}]
            first, other = (some.get(gap, (None, None, None)) for some in shown)
            rows.append(
                {
                    "differs in": differs,
                    "dataset": name,
                    "rule": gap[0],
                    "logits": gap[1],
                    "area": first[0],
                    "low": first[1],
                    "high": first[2],
                    "other": other[0],
                    "held": f"{sum(pairs)} of {len(pairs)}",
                    "rate": sum(pairs) / len(pairs),
                    "expected": EXPECTED[differs],
                }
            )
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+", help="the results folder of a finished run, or of several")
    parser.add_argument("--record", type=Path, help="write the results to this JSON file")
    options = parser.parse_args()
    for folder in options.results:
        if not (folder / "provenance.json").is_file():
            parser.error(f"{folder} has no provenance.json, so it is not the results folder of a finished run")
    if len(options.results) == 1:
        found = list(measured_again(options.results[0], settings(options.results[0])))
    else:
        found = list(between_runs(options.results))
    if not found:
        parser.error(f"{' and '.join(map(str, options.results))} have no gap of the same model and dataset to compare")
    report(rows_of(found), machine(), options.record)
