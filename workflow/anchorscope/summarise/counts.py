"""How many questions and answers were kept or left out, and why."""

import json
from collections.abc import Mapping, Sequence

import polars as pl

from anchorscope.choose.balance import GRADES, before_balance
from anchorscope.files.sealed_parquet import made_from, read_metadata


def count_examples(pairs: Sequence[Sequence[str]], questions: Mapping[str, str], chosen: Sequence[str]) -> pl.DataFrame:
    """One row per model and dataset.

    `questions` has one file per dataset. `chosen` has those of the chosen examples, as `by_pair` takes them.
    """
    return pl.DataFrame(
        {"model": model, "weights": made_from(own[0])["model"]["weights"], "dataset": dataset}
        | count_pair(questions[dataset], own)
        for (model, dataset), own in by_pair(chosen, pairs).items()
    )


def by_pair(files: Sequence[str], pairs: Sequence[Sequence[str]]) -> dict[tuple[str, str], Sequence[str]]:
    """The files of each model and dataset: one per shard, which stand together, in the order of the pairs."""
    shards = len(files) // len(pairs)
    some = [files[start : start + shards] for start in range(0, len(files), shards)]
    return {(model, dataset): own for (model, dataset), own in zip(pairs, some, strict=True)}


def count_pair(questions: str, chosen: Sequence[str]) -> dict:
    """The counts of one model on one dataset, from its files."""
    dropped = rows_by_verdict(questions)
    kept = dropped.pop("kept")
    verdicts = before_balance(chosen)
    right, wrong, refused = (verdicts[name] for name in GRADES)
    analysed = sum(read_metadata(path).num_rows for path in chosen)
    return {
        "questions": kept,
        "dropped_questions": sum(dropped.values()),
        "dropped_because": ", ".join(f"{number} {reason}" for reason, number in dropped.items()),
        "asked": right + wrong + refused,
        "right": right,
        "wrong": wrong,
        "refused": refused,
        "left_out_by_balance": right + wrong - analysed,
        "analysed": analysed,
    }


def count_questions(questions: Mapping[str, str]) -> pl.DataFrame:
    """One row per dataset and reason why its rows were kept or dropped."""
    return pl.DataFrame(
        [
            {"dataset": dataset, "verdict": verdict, "rows": number}
            for dataset, path in questions.items()
            for verdict, number in rows_by_verdict(path).items()
        ]
    )


def rows_by_verdict(questions: str) -> dict[str, int]:
    """How many of a dataset's rows were kept, and how many were dropped for each reason."""
    return json.loads(read_metadata(questions).metadata[b"counts"])
