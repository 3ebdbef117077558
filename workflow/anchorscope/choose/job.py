"""The choose stage from a file to a file."""

from pathlib import Path

from anchorscope.choose.balance import Balance, analysed
from anchorscope.choose.counts import counted
from anchorscope.files.provenance import provenance
from anchorscope.files.sealed_parquet import made_from, read_table, write_table


def choose_file(answers: Path | str, target: Path | str, *, balance: Balance, seed: int, code: str) -> None:
    """Write the answers of a shard that are analysed, in the order in which they are."""
    judged, asked = read_table(answers), made_from(answers)
    made = provenance(
        stage="choose",
        model=asked["model"],
        prompts=asked["prompts"],
        balance=balance,
        seed=seed,
        before_balance=counted(judged),
        code=code,
    )
    write_table(target, analysed(judged, balance, seed).replace_schema_metadata(), made)
