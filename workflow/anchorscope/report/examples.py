"""Questions and answers on the report: the first examples of each anchor, not the best."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import polars as pl
from markupsafe import Markup

from anchorscope.files.frames import read_frame
from anchorscope.report.rendering import render
from anchorscope.summarise.counts import by_pair

COUNT = 10  # of each anchor, model and dataset
GOLD = 3  # accepted answers that are shown
COLUMNS = ["id", "question", "spans", "gold", "answer", "exact_start", "exact_answer"]
ANCHORED = {True: "Question-Anchored", False: "Answer-Anchored"}
JUDGED = {True: "right", False: "hallucinated", None: "refused"}


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
    p_clean: float | None  # None where nothing was probed
    p_cut: float | None


@dataclass(frozen=True)
class Group:
    """The examples of one anchor, or of one verdict where nothing was probed."""

    heading: str
    examples: list[Example]


def read_examples(
    deepest: Path | str, answers: Sequence[str], models: Mapping[str, str], datasets: Mapping[str, str]
) -> dict[tuple[str, str], pl.DataFrame]:
    """The examples to show, by the titles of model and dataset."""
    chosen = choose(read_frame(deepest))
    pairs = list(product(models, datasets))
    examples = {}
    for (model, dataset), own in zip(pairs, by_pair(answers, pairs), strict=True):
        mine = chosen.filter(model=model, dataset=dataset)
        shown = not_probed(own) if mine.is_empty() else with_answers(mine, own)
        examples[models[model], datasets[dataset]] = shown
    return examples


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


def not_probed(shards: Sequence[Path | str]) -> pl.DataFrame:
    """The first answers by id of each verdict, of a model and dataset for which there is no probe."""
    answers = pl.concat(read_frame(path, [*COLUMNS, "right"]) for path in shards)
    return answers.sort("id").group_by("right", maintain_order=True).head(COUNT)


def examples_section(examples: Mapping[tuple[str, str], pl.DataFrame]) -> Markup:
    """Examples by the titles of model and dataset, from `with_answers` or `not_probed`; the first pair is unfolded."""
    pairs = [_pair(f"{model}, {dataset}", rows) for (model, dataset), rows in examples.items()]
    return render("examples.html", count=COUNT, pairs=pairs)


def _pair(title: str, rows: pl.DataFrame) -> tuple[str, list[Group]]:
    if "question_anchored" in rows.columns:
        return title, [_group(name, rows.filter(question_anchored=anchored)) for anchored, name in ANCHORED.items()]
    by_verdict = {name: rows.filter(pl.col("right").eq_missing(right)) for right, name in JUDGED.items()}
    groups = [
        Group(name.capitalize(), [_example(row) for row in some.iter_rows(named=True)])
        for name, some in by_verdict.items()
        if len(some)
    ]
    return f"{title} (not probed)", groups


def _group(anchor: str, examples: pl.DataFrame) -> Group:
    layer = f", layer {examples['layer'][0]}" if len(examples) else ": none"
    return Group(f"{anchor}{layer}", [_example(row) for row in examples.iter_rows(named=True)])


def _example(row: Mapping) -> Example:
    start = row["exact_start"]
    more = f" and {len(row['gold']) - GOLD} more" if len(row["gold"]) > GOLD else ""
    return Example(
        question=stretches(row["question"], [(span["start"], span["end"]) for span in row["spans"]]),
        answer=stretches(row["answer"], [] if start is None else [(start, start + len(row["exact_answer"]))]),
        verdict=JUDGED[row["right"] if "right" in row else not row["hallucinated"]],
        gold="; ".join(row["gold"][:GOLD]) + more,
        p_clean=row.get("p_clean"),
        p_cut=row.get("p_ko"),
    )


def stretches(text: str, spans: Iterable[tuple[int, int]]) -> list[Stretch]:
    """A text in stretches: those in `spans` are marked, the others are not."""
    parts, done = [], 0
    for start, end in sorted(spans):
        start = max(start, done)
        parts += [Stretch(text[done:start], False), Stretch(text[start:end], True)]
        done = end
    return [part for part in [*parts, Stretch(text[done:], False)] if part.text]
