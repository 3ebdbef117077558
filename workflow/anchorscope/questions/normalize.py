"""From raw rows, as each dataset publishes them, to one table of questions.

| column | type | meaning |
|---|---|---|
| id | string | stable identifier of the question within its dataset |
| question | string | the text shown to the model |
| gold | list of string | accepted answers |
| subject | string, null | the entity asked about, if the dataset names it |
| popularity | integer, null | the dataset's own popularity of the subject |
| spans | list of (start, end, kind) | characters of the exact question words; subject or property |
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace

import polars as pl

from anchorscope.text.content_words import ExactSpan, exact_question_spans
from anchorscope.text.normal_words import normal_words

SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "id": pl.String,
    "question": pl.String,
    "gold": pl.List(pl.String),
    "subject": pl.String,
    "popularity": pl.Int64,
    "spans": pl.List(pl.Struct({"start": pl.Int64, "end": pl.Int64, "kind": pl.String})),
}
ACCEPTED = "kept"
LONGEST_QUESTION = 4000  # characters per question: the patterns of exact words take quadratic time


@dataclass(frozen=True)
class Question:
    id: str
    question: str
    gold: list[str]
    subject: str | None
    popularity: int | None
    spans: list[ExactSpan]


def _popqa(row: dict) -> tuple[list[str], str | None, int | None]:
    answers = row["possible_answers"]
    if isinstance(answers, str):
        answers = json.loads(answers) if answers else []
    return _texts(answers, "possible_answers"), row["subj"], row["s_pop"]


def _triviaqa(row: dict) -> tuple[list[str], str | None, int | None]:
    answer = row["answer"] or {}
    if not isinstance(answer, dict):
        raise TypeError("answer is not a record with value and aliases")
    return [*_text(answer.get("value"), "answer.value"), *_texts(answer.get("aliases"), "answer.aliases")], None, None


def _hotpotqa(row: dict) -> tuple[list[str], str | None, int | None]:
    return _text(row["answer"], "answer"), None, None


def _nq(row: dict) -> tuple[list[str], str | None, int | None]:
    return _texts(row["answer"], "answer"), None, None


def _text(value: object, column: str) -> list[str]:
    """One accepted answer, or none where there is nothing."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{column} is {_shown(value)}, not a text")
    return [] if value is None else [value]


def _texts(values: object, column: str) -> list[str]:
    """A list of accepted answers; none where there is nothing."""
    if values is None:
        return []
    if not isinstance(values, list):
        raise TypeError(f"{column} is {_shown(values)}, not a list of texts")
    return [text for value in values for text in _text(value, f"an entry of {column}")]


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"


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
            _check(text, popularity)
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


def _check(question: str, popularity: object) -> None:
    if len(question) > LONGEST_QUESTION:
        raise ValueError(f"its question has {len(question)} characters; at most {LONGEST_QUESTION} can be asked")
    if popularity is not None and not (type(popularity) is int and abs(popularity) < 2**63):
        raise TypeError(f"its popularity is {_shown(popularity)}, not a whole number below 2 to the 63rd")


def _clean(text: str | None) -> str:
    """Collapse white space; undo the doubled quotes that a careless CSV export leaves behind."""
    text = " ".join((text or "").split())
    if len(text) > 1 and text[0] == text[-1] == '"' and '""' in text:
        text = text[1:-1].replace('""', '"')
    return text.replace('""', '"').strip()
