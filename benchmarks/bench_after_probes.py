"""Time and memory of the jobs that follow the probes, with many examples: estimate, weigh_kinds and read_text.

Logits, folds and texts are made up: two kinds of examples, of which one loses its evidence, and words drawn as often as
words are. Every job runs in a process of its own. With `--code` the checkouts of several versions take turns, and the
first is what the others are compared with: "apart" is the largest difference between two numbers of their tables.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl
from bench_growth import LAUNCHER
from common import ROOT, arguments, machine, report

from anchorscope.text.forms import ANSWER_FORMS, QUESTION_FORMS

PROBES = ("full", "half_a", "half_b", "second_b")
WORDS = 20_000
# What each job computes, as its script does.
BEGIN = """
import os, sys
folder, target, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
if job == "estimate":
    os.environ.update(dict.fromkeys(["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"], "1"))
import inspect
import polars as pl
from anchorscope.extract.axes import Headline
delta, layers, answers = (pl.read_parquet(f"{folder}/{name}.parquet") for name in ("delta", "layers", "answers"))
headline, drawn = Headline("resid", "answer_last"), {"bootstrap_draws": 2000, "seed": 0}
"""
JOBS = {
    "estimate": """
from anchorscope.summarise.pair_tables import summary_tables
found = summary_tables(delta, layers, headline, **drawn, threads=threads)
""",
    "weigh_kinds": """
import torch
from anchorscope.summarise.weigh_kinds import weigh_kinds
torch.set_num_threads(1 if "processes" in inspect.signature(weigh_kinds).parameters else threads)
names = {"threads", "processes"} & set(inspect.signature(weigh_kinds).parameters)  # which version calls them how
side_by_side = dict.fromkeys(names, threads)
found = dict(zip(("accounts", "told_apart"), weigh_kinds(delta, answers, headline, **drawn, **side_by_side)))
""",
    "read_text": """
import torch
from anchorscope.probe.readers import text_table
torch.set_num_threads(threads)
found = {"text": text_table(delta, layers, answers, folds=5, seed=0, where="here")}
""",
}
END = """
for name, table in found.items():
    table.write_parquet(f"{target}/{name}.parquet")
"""


def make_tables(folder: Path, examples: int, layers: int) -> None:
    """Write the delta and layers tables, and the answers."""
    draw = np.random.default_rng(0)
    wrong, lost = draw.random((2, examples)) < 0.5
    ids = [f"{number:012d}" for number in range(examples)]
    keys = {
        "id": ids,
        "cluster": ids,
        "popularity": draw.integers(1, 10_000, examples),
        "hallucinated": wrong,
        "question_form": draw.choice(list(QUESTION_FORMS), examples),
        "answer_form": draw.choice(list(ANSWER_FORMS), examples),
        "answer_in_question": draw.random(examples) < 0.2,
    }
    tables = []
    for repeat in range(3):
        fold = draw.integers(0, 5, examples).astype(np.int8)
        for layer in range(layers):
            clean = {name: np.where(wrong, 1.0, -1.0) + draw.normal(0, 1.5, examples) for name in PROBES}
            for intervention in ("exact_question", "random_question"):
                left = np.where(lost, 0.1, 0.9) if intervention == "exact_question" else 1.0
                cut = {name: left * clean[name] + draw.normal(0.2, 0.8, examples) for name in PROBES}
                logits = {f"logit_clean_{name}": clean[name] for name in PROBES}
                logits |= {f"logit_ko_{name}": cut[name] for name in PROBES}
                rows = pl.DataFrame({**keys, "fold": fold, "distance": draw.gamma(4, 0.3, examples), **logits})
                tables.append(
                    rows.with_columns(
                        pl.col("^logit.*$", "distance").cast(pl.Float32),
                        component=pl.lit("resid"),
                        position=pl.lit("answer_last"),
                        intervention=pl.lit(intervention),
                        repeat=pl.lit(repeat, pl.Int8),
                        layer=pl.lit(layer, pl.Int16),
                    )
                )
    pl.concat(tables).write_parquet(folder / "delta.parquet")
    place = {"component": "resid", "position": "answer_last"}
    quality = {"auc": 0.8, "better_than_chance": True, "inner_losses": [0.6] * 5}
    pl.DataFrame(
        [
            {**place, "intervention": intervention, "layer": layer, "is_reference": layer == layers // 2, **quality}
            for intervention in ("clean", "exact_question", "random_question")
            for layer in range(layers)
        ],
        schema_overrides={"layer": pl.Int16},
    ).write_parquet(folder / "layers.parquet")
    often = 1 / np.arange(1, WORDS + 1)
    said = [[f"w{word}" for word in draw.choice(WORDS, 12, p=often / often.sum())] for _ in range(examples)]
    pl.DataFrame(
        {
            "id": ids,
            "right": ~wrong,
            "subject": pl.Series([None] * examples, dtype=pl.String),
            "popularity": keys["popularity"],
            "property": pl.Series([None] * examples, dtype=pl.String),
            "question": [" ".join(words[:9]) for words in said],
            "answer": [" ".join(words[9:]) for words in said],
            "exact_first": np.zeros(examples, int),
            "exact_last": draw.integers(0, 5, examples),
            "answer_final": np.full(examples, 6),
        }
    ).write_parquet(folder / "answers.parquet")


def run(job: str, code: Path, folder: Path, target: Path, threads: int) -> dict:
    target.mkdir(exist_ok=True)
    command = [sys.executable, "-c", LAUNCHER, "-c", f"job = {job!r}{BEGIN}{JOBS[job]}{END}"]
    start = time.perf_counter()
    done = subprocess.run(
        [*command, str(folder), str(target), str(threads)],
        env={**os.environ, "PYTHONPATH": str(code / "workflow")},
        capture_output=True,
        text=True,
    )
    wall = time.perf_counter() - start
    if done.returncode:
        raise RuntimeError(f"{job} failed:\n{done.stderr}")
    peak, used = map(float, done.stdout.split())
    return {"job": job, "wall s": wall, "processor s": used, "peak MiB": peak / 1024}


def apart(one: Path, other: Path) -> float:
    """The largest difference between two numbers of the same tables."""
    most = 0.0
    for file in one.glob("*.parquet"):
        mine, theirs = (pl.read_parquet(folder / file.name).select(pl.col(pl.Float64)) for folder in (one, other))
        if len(mine):
            most = max(most, *((mine - theirs).select(pl.all().abs().max()).row(0)), key=lambda value: value or 0.0)
    return most


if __name__ == "__main__":
    options = arguments(
        examples={"type": int, "default": 8000},
        layers={"type": int, "default": 30},
        threads={"type": int, "default": os.cpu_count()},
        jobs={"nargs": "+", "default": list(JOBS), "choices": list(JOBS)},
        code={"type": Path, "nargs": "+", "default": [ROOT], "help": "checkouts, of which the first is the reference"},
        repeats={"type": int, "default": 1},
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_tables(folder, options.examples, options.layers)
        results = []
        for job in options.jobs:
            targets = [folder / f"{job}-{number}" for number in range(len(options.code))]
            turns = [
                [
                    run(job, code, folder, target, options.threads)
                    for code, target in zip(options.code, targets, strict=True)
                ]
                for _ in range(options.repeats)
            ]
            for number, rows in enumerate(zip(*turns, strict=True)):
                best = min(rows, key=lambda row: row["processor s"])
                results.append({"code": number, **best, "apart": apart(targets[0], targets[number])})
                print(results[-1], flush=True)
    about = {"examples": options.examples, "layers": options.layers, "threads": options.threads}
    report(results, {**about, **machine()}, options.record)
