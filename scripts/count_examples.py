"""Count questions and answers, kept and left out, by reason.

Writes one row a model and dataset.
"""

import json

import polars as pl
import pyarrow.parquet as pq

from anchorscope.files import atomic
from anchorscope.logs import configure_logging


def count(model: str, dataset: str, shards: list[str]) -> dict:
    """One row of the table."""
    counts = json.loads(pq.read_metadata(f"results/questions/{dataset}.parquet").metadata[b"counts"])
    answers = pl.concat(
        pl.read_parquet(
            f"results/answers/{model}/{dataset}/{shard}.parquet", columns=["right", "refused", "exact_first"]
        )
        for shard in shards
    )
    kept = sum(pq.read_metadata(f"results/activations/{model}/{dataset}/{shard}.parquet").num_rows for shard in shards)
    located = answers.filter(~pl.col("refused") & pl.col("exact_first").is_not_null()).height
    right = int(answers["right"].sum() or 0)
    refused = int(answers["refused"].sum() or 0)
    return {
        "model": model,
        "dataset": dataset,
        "questions": counts.pop("kept", 0),
        "dropped_questions": sum(counts.values()),
        "dropped_because": ", ".join(f"{number} {reason}" for reason, number in counts.items()),
        "asked": answers.height,
        "right": right,
        "wrong": answers.height - refused - right,
        "refused": refused,
        "no_exact_answer": answers.height - refused - located,
        "left_out_by_balance": located - kept,
        "analysed": kept,
    }


if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    shards = json.loads(snakemake.params.shards)
    table = pl.DataFrame([count(model, dataset, shards) for model, dataset in json.loads(snakemake.params.pairs)])
    with atomic(snakemake.output[0]) as target:
        table.write_csv(target)
