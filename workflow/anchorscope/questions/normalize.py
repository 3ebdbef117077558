"""From raw rows, as each dataset publishes them, to one table of questions.

| column | type | meaning |
|---|---|---|
| id | string | stable identifier of the question within its dataset |
| question | string | the text shown to the model |
| gold | list of string | accepted answers |
| subject | string, null | the entity asked about, if the dataset names it |
| popularity | integer, null | the dataset's own popularity of the subject |
| spans | list of (start, end) | characters of the exact question words |
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace

import polars as pl

from anchorscope.text.content_words import exact_question_spans
from anchorscope.text.normal_words import normal_words
from anchorscope.text.spans import Span

SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "id": pl.String,
    "question": pl.String,
    "gold": pl.List(pl.String),
    "subject": pl.String,
    "popularity": pl.Int64,
    "spans": pl.List(pl.Struct({"start": pl.Int64, "end": pl.Int64})),
}
ACCEPTED = "kept"


@dataclass(frozen=True)
class Question:
    id: str
    question: str
    gold: list[str]
    subject: str | None
    popularity: int | None
    spans: list[Span]


def _popqa(row: dict) -> tuple[list[str], str | None, int | None]:
    gold = _json_list(row["possible_answers"])
    return gold, row["subj"], row["s_pop"]


def _triviaqa(row: dict) -> tuple[list[str], str | None, int | None]:
    answer = row["answer"] or {}
    return [answer.get("value"), *(answer.get("aliases") or [])], None, None


def _hotpotqa(row: dict) -> tuple[list[str], str | None, int | None]:
    return [row["answer"]], None, None


def _nq(row: dict) -> tuple[list[str], str | None, int | None]:
    if isinstance(row["answer"], str):
        raise TypeError("answer is a string, not a list of strings")
    return row["answer"] or [], None, None


@dataclass(frozen=True)
class Layout:
    """How one dataset's rows are laid out: the columns read, and how to read gold, subject, popularity."""

    columns: tuple[str, ...]
    read: Callable[[dict], tuple[list[str], str | None, int | None]]


LAYOUTS = {
    "popqa": Layout(("question", "possible_answers", "subj", "s_pop"), _popqa),
    "triviaqa": Layout(("question", "answer"), _triviaqa),
    "hotpotqa": Layout(("question", "answer"), _hotpotqa),
    "nq": Layout(("question", "answer"), _nq),
}


def normalize(raw: pl.DataFrame, layout: str, seed: int, where: str) -> tuple[pl.DataFrame, dict[str, int]]:
    """One row per usable question, in a seeded order, and how many rows were kept or dropped, by reason."""
    wanted = LAYOUTS[layout].columns
    missing = [column for column in wanted if column not in raw.columns]
    if missing:
        raise ValueError(
            f"{where} does not have the columns of layout '{layout}': missing {', '.join(missing)}; "
            f"it has {', '.join(raw.columns)}."
        )
    counts: Counter[str] = Counter()
    kept: dict[str, Question] = {}
    for question, verdict in _judged(raw, layout, where):
        text = question.question.casefold()
        if verdict == ACCEPTED and text in kept:
            verdict = "duplicate question"
            # "Who was the composer of Time?" is asked of two songs; either composer is right.
            kept[text] = replace(kept[text], gold=list(dict.fromkeys(kept[text].gold + question.gold)))
        counts[verdict] += 1
        if verdict == ACCEPTED:
            kept[text] = question
    ordered = sorted(kept.values(), key=lambda question: hashlib.sha256(f"{seed}\n{question.id}".encode()).digest())
    return pl.DataFrame([asdict(question) for question in ordered], schema=SCHEMA), dict(sorted(counts.items()))


def _judged(raw: pl.DataFrame, layout: str, where: str) -> Iterator[tuple[Question, str]]:
    columns = LAYOUTS[layout].columns
    for number, row in enumerate(raw.select(columns).iter_rows(named=True), start=1):
        try:
            gold, subject, popularity = LAYOUTS[layout].read(row)
            text, subject = _clean(row["question"]), _clean(subject) or None
            gold = list(dict.fromkeys(alias for alias in map(_clean, gold) if normal_words(alias)))
        except (AttributeError, TypeError, ValueError) as error:
            types = ", ".join(f"{column} {raw.schema[column]}" for column in columns)
            raise ValueError(
                f"Row {number} of {where} cannot be read as layout '{layout}' ({error}); its columns are {types}."
            ) from error
        spans = exact_question_spans(text, subject)
        name = hashlib.sha256(text.casefold().encode()).hexdigest()[:12]
        question = Question(id=name, question=text, gold=gold, subject=subject, popularity=popularity, spans=spans)
        if not text:
            yield question, "no question"
        elif not gold:
            yield question, "no gold answer"
        elif not spans:
            yield question, "no exact question words"
        else:
            yield question, ACCEPTED


def _clean(text: str | None) -> str:
    """Collapse white space; undo the doubled quotes that a careless CSV export leaves behind."""
    text = " ".join((text or "").split())
    if len(text) > 1 and text[0] == text[-1] == '"' and '""' in text:
        text = text[1:-1].replace('""', '"')
    return text.replace('""', '"').strip()


def _json_list(text: str | None) -> list[str]:
    values = json.loads(text) if text else []
    return [str(value) for value in values]
