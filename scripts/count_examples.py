"""Count questions and answers, kept and left out, by reason.

Writes one row a model and dataset, and one a dataset and reason for which its rows were kept or dropped.
"""

import json

import polars as pl

from anchorscope.files.atomic import atomic
from anchorscope.files.frames import read_frame
from anchorscope.files.logs import configure_logging
from anchorscope.files.sealed_parquet import made_from, read_metadata


def verdicts_on(questions: str) -> dict[str, int]:
    """How many of a dataset's rows were kept, and how many were dropped for each reason."""
    return json.loads(read_metadata(questions).metadata[b"counts"])


def count(questions: str, answers: list[str], activations: list[str]) -> dict:
    """The counts of one model on one dataset, from its files."""
    dropped = verdicts_on(questions)
    kept = dropped.pop("kept")
    verdicts = pl.concat(read_frame(path, ["right"])["right"] for path in answers)
    right, refused = verdicts.sum(), verdicts.null_count()
    wrong = len(verdicts) - right - refused
    analysed = sum(read_metadata(path).num_rows for path in activations)
    return {
        "questions": kept,
        "dropped_questions": sum(dropped.values()),
        "dropped_because": ", ".join(f"{number} {reason}" for reason, number in dropped.items()),
        "asked": len(verdicts),
        "right": right,
        "wrong": wrong,
        "refused": refused,
        "left_out_by_balance": right + wrong - analysed,
        "analysed": analysed,
    }


if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    files, pairs = snakemake.input, json.loads(snakemake.params.pairs)
    questions = dict(zip(json.loads(snakemake.params.datasets), files.questions, strict=True))
    shards = len(files.answers) // len(pairs)  # the files of a pair stand together, in the order of the pairs
    rows = []
    for index, (model, dataset) in enumerate(pairs):
        own = slice(index * shards, (index + 1) * shards)
        counts = count(questions[dataset], files.answers[own], files.activations[own])
        weights = made_from(files.answers[own][0])["model"]["weights"]
        rows.append({"model": model, "weights": weights, "dataset": dataset, **counts})
    with atomic(snakemake.output.examples) as target:
        pl.DataFrame(rows).write_csv(target)
    with atomic(snakemake.output.questions) as target:
        pl.DataFrame(
            [
                {"dataset": dataset, "verdict": verdict, "rows": number}
                for dataset, path in questions.items()
                for verdict, number in verdicts_on(path).items()
            ]
        ).write_csv(target)
