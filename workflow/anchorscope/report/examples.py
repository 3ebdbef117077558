"""Questions and answers on the report: the first examples of each anchor, not the best."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from markupsafe import Markup

from anchorscope.files.frames import read_frame
from anchorscope.report.rendering import render

COUNT = 10  # of each anchor, model and dataset
GOLD = 3  # accepted answers that are shown
COLUMNS = ["id", "question", "spans", "gold", "answer", "exact_start", "exact_answer"]
ANCHORED = {True: "Question-Anchored", False: "Answer-Anchored"}


@dataclass(frozen=True)
class Stretch:
    """Neighbouring characters of a text, marked or not."""

    text: str
    marked: bool


@dataclass(frozen=True)
class Example:
    """One question and its answer, with the probe's probability that it is hallucinated."""

    question: list[Stretch]
    answer: list[Stretch]
    verdict: str
    gold: str
    p_clean: float
    p_cut: float


@dataclass(frozen=True)
class Group:
    """The examples of one anchor."""

    heading: str
    examples: list[Example]


def choose(deepest: pl.DataFrame) -> pl.DataFrame:
    """The first examples by id of every model, dataset and anchor; an id is a hash, so nobody chose them."""
    keys = ["model", "dataset", "question_anchored"]
    chosen = deepest.filter(intervention="exact_question").sort(*keys, "id")
    return chosen.group_by(keys, maintain_order=True).head(COUNT)


def with_answers(chosen: pl.DataFrame, shards: Iterable[Path | str]) -> pl.DataFrame:
    """The examples of one model and dataset with what was asked and answered, from its answers files."""
    wanted = chosen["id"].implode()
    answers = [read_frame(path, COLUMNS).filter(pl.col("id").is_in(wanted)) for path in shards]
    return chosen.join(pl.concat(answers), on="id", maintain_order="left")


def examples_section(examples: Mapping[tuple[str, str], pl.DataFrame]) -> Markup:
    """Examples by the titles of model and dataset; the first pair is unfolded."""
    pairs = [
        (
            f"{model}, {dataset}",
            [_group(heading, rows.filter(question_anchored=anchored)) for anchored, heading in ANCHORED.items()],
        )
        for (model, dataset), rows in examples.items()
    ]
    return render("examples.html", count=COUNT, pairs=pairs)


def _group(anchor: str, examples: pl.DataFrame) -> Group:
    layer = f", layer {examples['layer'][0]}" if len(examples) else ": none"
    return Group(f"{anchor}{layer}", [_example(row) for row in examples.iter_rows(named=True)])


def _example(row: Mapping) -> Example:
    start = row["exact_start"]
    more = f" and {len(row['gold']) - GOLD} more" if len(row["gold"]) > GOLD else ""
    return Example(
        question=stretches(row["question"], [(span["start"], span["end"]) for span in row["spans"]]),
        answer=stretches(row["answer"], [] if start is None else [(start, start + len(row["exact_answer"]))]),
        verdict="hallucinated" if row["hallucinated"] else "right",
        gold="; ".join(row["gold"][:GOLD]) + more,
        p_clean=row["p_clean"],
        p_cut=row["p_ko"],
    )


def stretches(text: str, spans: Iterable[tuple[int, int]]) -> list[Stretch]:
    """A text in stretches: those in `spans` are marked, the others are not."""
    parts, done = [], 0
    for start, end in sorted(spans):
        start = max(start, done)
        parts += [Stretch(text[done:start], False), Stretch(text[start:end], True)]
        done = end
    return [part for part in [*parts, Stretch(text[done:], False)] if part.text]
