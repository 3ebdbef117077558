"""The choose stage: which answers are analysed. No refusals, and where it is asked for as many right as wrong ones."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from anchorscope.files.identity import seeded_place
from anchorscope.files.logs import log
from anchorscope.files.sealed_parquet import made_from, provenance, read_table, write_table

Balance = bool | Literal["property", "form"]  # as many right as wrong answers: of all, or within parts of them
WITHIN = {"property": "property", "form": "question_form"}  # the column of answers that has these parts
GRADES = {"right": True, "hallucinated": False, "refused": None}


def balanced(ids: list[str], right: list[bool], within: Sequence[str | None], seed: int) -> list[int]:
    """Which examples to keep: all of the smaller class and an equal, seeded draw of the larger one.

    Classes are balanced among the examples that have the same value in `within`. Their order does not depend on the
    classes, so which examples share a batch does not either.
    """
    drawn = sorted(range(len(ids)), key=lambda index: seeded_place(seed, ids[index]))
    parts: dict[str | None, tuple[list[int], list[int]]] = {}
    for index in drawn:
        parts.setdefault(within[index], ([], []))[right[index]].append(index)
    kept = {index for wrong, fine in parts.values() for pair in zip(wrong, fine, strict=False) for index in pair}
    return [index for index in drawn if index in kept]


def analysed(answers: pa.Table, balance: Balance, seed: int) -> pa.Table:
    """The answers that are analysed: no refusals, and with `balance` as many right as wrong ones.

    With `balance` "property", there are as many among the questions about each property; with "form", among those of
    each form. The column `stands_for` says how many answers of its class (and property, or form) each stands for.
    """
    usable = answers.filter(~pc.field("refused"))
    ids, right = (usable[name].to_pylist() for name in ("id", "right"))
    within = usable[WITHIN[balance]].to_pylist() if isinstance(balance, str) else [None] * len(ids)
    if balance == "property" and not any(within):
        log.info("no question names the property that it asks about, so right and wrong are balanced over all of them")
    kept = balanced(ids, right, within, seed=seed) if balance else list(range(len(ids)))
    log.info("%d answers can be analysed, %d are left out to balance right and wrong", len(ids), len(ids) - len(kept))
    classes = list(zip(right, within, strict=True))
    every, left = Counter(classes), Counter(classes[index] for index in kept)
    stands_for = [every[classes[index]] / left[classes[index]] for index in kept]
    # Arrow cannot know that an empty list would hold numbers.
    examples = usable.take(pa.array(kept, pa.int64()))
    return examples.append_column("stands_for", pa.array(stands_for, pa.float64()))


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


def counted(answers: pa.Table) -> dict[str, int]:
    """How many answers there are of each verdict."""
    verdicts = answers["right"].to_pylist()
    return {name: verdicts.count(verdict) for name, verdict in GRADES.items()}


def before_balance(chosen: Iterable[Path | str]) -> Counter[str]:
    """The same of all answers that some files of chosen examples were chosen from."""
    return sum((Counter(made_from(path)["before_balance"]) for path in chosen), Counter())
