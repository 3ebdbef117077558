"""How the answers came out, before some were left out to balance them."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from anchorscope.files.sealed_parquet import made_from

VERDICTS = {"right": True, "hallucinated": False, "refused": None}


def counted(answers: pa.Table) -> dict[str, int]:
    """How many answers there are of each verdict."""
    verdicts = answers["right"].to_pylist()
    return {name: verdicts.count(verdict) for name, verdict in VERDICTS.items()}


def before_balance(chosen: Iterable[Path | str]) -> Counter[str]:
    """The same of all answers that some files of chosen examples were chosen from."""
    return sum((Counter(made_from(path)["before_balance"]) for path in chosen), Counter())
