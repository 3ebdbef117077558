"""Questions and answers on the report: the first examples of each anchor, not the best."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import polars as pl
from markupsafe import Markup

from anchorscope.files.frames import read_frame
from anchorscope.report.page import render

COUNT = 10  # of each anchor, model and dataset
GOLD = 3  # accepted answers that are shown
COLUMNS = ["id", "question", "spans", "gold", "answer", "exact_start", "exact_answer"]
ANCHORED = {True: "Question-Anchored", False: "Answer-Anchored"}
JUDGED = {True: "right", False: "hallucinated", None: "refused"}
Answers = Mapping[tuple[str, str], Sequence[str]]  # files, by model and dataset
Stretch = tuple[str, bool]  # neighbouring characters of a text, and whether they are marked


def read_examples(
    deepest: Path | str, answers: Answers, models: Mapping[str, str], datasets: Mapping[str, str]
) -> dict[tuple[str, str], pl.DataFrame]:
    """The examples to show, by the titles of model and dataset; `answers` has the files of each."""
    chosen = choose_shown(read_frame(deepest))
    examples = {}
    for (model, dataset), own in answers.items():
        mine = chosen.filter(model=model, dataset=dataset)
        shown = not_probed_rows(own) if mine.is_empty() else with_answers(mine, own)
        examples[models[model], datasets[dataset]] = shown
    return examples


def choose_shown(deepest: pl.DataFrame) -> pl.DataFrame:
    """The first examples by id of every model, dataset and anchor; an id is a hash, so nobody chose them."""
    keys = ["model", "dataset", "question_anchored"]
    chosen = deepest.filter(intervention="exact_question").sort(*keys, "id")
    return chosen.group_by(keys, maintain_order=True).head(COUNT)


def with_answers(chosen: pl.DataFrame, shards: Iterable[Path | str]) -> pl.DataFrame:
    """The examples of one model and dataset with what was asked and answered, from its answers files."""
    wanted = chosen["id"].implode()
    answers = [read_frame(path, COLUMNS).filter(pl.col("id").is_in(wanted)) for path in shards]
    return chosen.join(pl.concat(answers), on="id", maintain_order="left")


def not_probed_rows(shards: Sequence[Path | str]) -> pl.DataFrame:
    """The first answers by id of each verdict, of a model and dataset for which there is no probe."""
    answers = pl.concat(read_frame(path, [*COLUMNS, "right"]) for path in shards)
    return answers.sort("id").group_by("right", maintain_order=True).head(COUNT)


def examples_section(examples: Mapping[tuple[str, str], pl.DataFrame]) -> Markup:
    """Examples by the titles of model and dataset, from `with_answers` or `not_probed`; the first pair is unfolded."""
    pairs = []
    for (model, dataset), rows in examples.items():
        probed = "" if "question_anchored" in rows.columns else " (not probed)"
        groups = {heading: [_example(row) for row in some.iter_rows(named=True)] for heading, some in _groups(rows)}
        pairs.append((f"{model}, {dataset}{probed}", groups))
    return render("examples.html", count=COUNT, pairs=pairs)


def _groups(rows: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
    """The examples of each anchor with a heading, or of each verdict where nothing was probed."""
    if "question_anchored" in rows.columns:
        for anchored, name in ANCHORED.items():
            some = rows.filter(question_anchored=anchored)
            yield f"{name}, layer {some['layer'][0]}" if len(some) else f"{name}: none", some
    else:
        for right, name in JUDGED.items():
            some = rows.filter(pl.col("right").eq_missing(right))
            if len(some):
                yield name.capitalize(), some


def _example(row: Mapping) -> dict[str, object]:
    """A question and its answer, with the probe's probability that it is hallucinated, if something was probed."""
    start = row["exact_start"]
    more = f" and {len(row['gold']) - GOLD} more" if len(row["gold"]) > GOLD else ""
    return {
        "question": stretches(row["question"], [(span["start"], span["end"]) for span in row["spans"]]),
        "answer": stretches(row["answer"], [] if start is None else [(start, start + len(row["exact_answer"]))]),
        "verdict": JUDGED[row["right"] if "right" in row else not row["hallucinated"]],
        "gold": "; ".join(row["gold"][:GOLD]) + more,
        "p_clean": row.get("p_clean"),
        "p_cut": row.get("p_ko"),
    }


def stretches(text: str, spans: Iterable[tuple[int, int]]) -> list[Stretch]:
    """A text in stretches: those in `spans` are marked, the others are not."""
    parts: list[Stretch] = []
    done = 0
    for start, end in sorted(spans):
        start = max(start, done)
        parts += [(text[done:start], False), (text[start:end], True)]
        done = end
    return [part for part in [*parts, (text[done:], False)] if part[0]]
