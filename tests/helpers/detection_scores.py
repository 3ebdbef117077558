"""Scores of methods that never were, in the shape that a run leaves them in."""

from pathlib import Path

import numpy as np
import polars as pl

from anchorscope.detect.compare import Described, gather_detection
from anchorscope.detect.methods import METHODS, OTHERS
from anchorscope.detect.scoring import TRANSFER
from anchorscope.files.frames import write_frame
from anchorscope.files.sealed_parquet import provenance
from anchorscope.probe.examples import Pair

BY_DEFAULT = tuple(name for name, method in METHODS.items() if method.needs is None)
SKILL = {"probe": 1.0, "stacked": 1.4, "mop": 0.4}
Gathered = tuple[dict[str, pl.DataFrame], dict[str, object]]


def make_scores(
    examples: int = 120,
    seed: int = 0,
    skill: dict[str, float] | None = None,
    methods: tuple[str, ...] = BY_DEFAULT,
) -> pl.DataFrame:
    """Half the answers are hallucinated, and methods tell them by noise plus their skill; a few share a cluster.

    All methods share a part of the noise, as real ones do. Every third score is rounded, so that there are ties.
    """
    random = np.random.default_rng(seed)
    wrong = np.arange(examples) % 2 == 1
    common = random.normal(size=examples)
    tables = []
    for number, method in enumerate(methods):
        told = 2 * (skill or {}).get(method, 0.5) * wrong + 0.8 * common + 0.6 * random.normal(size=examples)
        score = np.round(told, 1) if number % 3 == 0 else told
        tables.append(
            pl.DataFrame(
                {
                    "method": [method] * examples,
                    "id": [f"{one:04d}" for one in range(examples)],
                    "cluster": [f"c{one // 3 if one < 12 else one}" for one in range(examples)],
                    "hallucinated": wrong,
                    "fold": (np.arange(examples) // 2 % 5).astype(np.int64),
                    "score": score,
                    "p": 1 / (1 + np.exp(-score)),
                }
            )
        )
    return pl.concat(tables)


def write_scores(path: Path, scores: pl.DataFrame, **made_from: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_frame(path, scores, provenance(stage="score_methods", code="0" * 16, **made_from))
    return path


def make_transfer(datasets: list[str], methods: tuple[str, ...] = BY_DEFAULT) -> pl.DataFrame:
    """An AUC of 0.6 elsewhere and 0.7 from all others; later methods a little less."""
    rows = []
    for number, method in enumerate(methods):
        for tested in datasets:
            others = [name for name in datasets if name != tested]
            for teacher in [*others, *([OTHERS] if others else [])]:
                auc = (0.7 if teacher == OTHERS else 0.6) - number / 1000
                rows.append((method, teacher, tested, 120, 0, auc, auc - 0.05, auc + 0.05))
    return pl.DataFrame(rows, schema=TRANSFER, orient="row")


def make_detection(folder: Path, models: dict[str, str], datasets: list[str], missing: Pair | None = None) -> Gathered:
    """The gathered tables of models, by their weights, and what their metadata say; one pair may not be probed."""
    files = {
        (model, dataset): write_scores(
            folder / model / f"{dataset}.parquet", make_scores(seed=10 * row + column, skill=SKILL)
        )
        for row, model in enumerate(models)
        for column, dataset in enumerate(datasets)
    }
    if missing:
        write_scores(files[missing], make_scores().clear(), not_probed="3 right are too few.")
    transfers = {
        model: write_scores(
            folder / f"{model}.parquet", make_transfer([name for name in datasets if (model, name) != missing])
        )
        for model in models
    }
    run = Described(
        models={model: {"weights": weights, "source": {}} for model, weights in models.items()},
        sources=dict.fromkeys(datasets, "bundled"),
        layouts=dict.fromkeys(datasets, "nq"),
        published={},
    )
    return gather_detection(files, transfers, run)
