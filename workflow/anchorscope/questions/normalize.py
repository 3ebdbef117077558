"""From raw rows, as each dataset publishes them, to one table of questions.

| column | type | meaning |
|---|---|---|
| id | string | stable identifier of the question within its dataset |
| question | string | the text shown to the model |
| gold | list of string | accepted answers |
| subject | string, null | the entity asked about, if the dataset names it |
| property | string, null | what is asked about it, if the dataset names that |
| popularity | integer, null | the dataset's own popularity of the subject |
| question_form | string | what the question asks with: see text/forms.py |
| spans | list of (start, end, kind) | characters of the exact question words; subject or property |
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from anchorscope.files.faults import shortened
from anchorscope.files.frames import read_frame, write_frame
from anchorscope.files.identity import canonical_json, seeded_place
from anchorscope.files.logs import log
from anchorscope.files.sealed_parquet import provenance
from anchorscope.questions.local_rows import name_row as name_row_of
from anchorscope.text.content_words import exact_question_spans
from anchorscope.text.forms import question_form
from anchorscope.text.normal_words import bare_words, normal_words, tidy

SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "id": pl.String,
    "question": pl.String,
    "gold": pl.List(pl.String),
    "subject": pl.String,
    "property": pl.String,
    "popularity": pl.Int64,
    "question_form": pl.String,
    "spans": pl.List(pl.Struct({"start": pl.Int64, "end": pl.Int64, "kind": pl.String})),
}
ACCEPTED = "kept"
NEEDED = {"question": "no question", "gold": "no gold answer", "spans": "no exact question words"}  # why it is dropped
WHOLE = re.compile(r"-?[0-9]+")
LONGEST_QUESTION = 4000  # characters per question: the patterns of exact words take quadratic time
# Words that most English questions have one of, and that other languages seldom spell so.
ENGLISH = frozenset(
    """
    what which who whom whose where when why how
    and were did does from with have been that this would
    """.split()
)
NOT_ENGLISH = (
    "Most questions are not in English. Exact question words, short answers and forms are found by rules of English, "
    "refusals by common phrases of eight languages: read some questions and answers before you trust the numbers."
)
Question = dict[str, Any]  # by the columns of `SCHEMA`


@dataclass(frozen=True)
class Fields:
    """What a row says beside its question."""

    gold: list[str]  # accepted answers
    subject: object = None
    property: object = None
    popularity: object = None


def _about_subject(row: dict, answers: str, subject: str, asked: str, popularity: str) -> Fields:
    """By the names of the columns: accepted answers, the subject, what is asked about it, and how popular it is."""
    number = row.get(popularity)
    if isinstance(number, str) and WHOLE.fullmatch(number.strip()):  # every cell of a CSV file is a text
        number = int(number)
    return Fields(_texts(row[answers], answers), row.get(subject), row.get(asked), popularity=number)


def _triviaqa(row: dict) -> Fields:
    answer = row["answer"] or {}
    if not isinstance(answer, dict):
        raise TypeError("answer is not a record with value and aliases")
    return Fields([*_text(answer.get("value"), "answer.value"), *_texts(answer.get("aliases"), "answer.aliases")])


def _text(value: object, column: str) -> list[str]:
    """One accepted answer, or none where there is nothing."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{column} is {shortened(repr(value), 40)}, not a text")
    return [] if value is None else [value]


def _texts(values: object, column: str) -> list[str]:
    """A list of accepted answers, or the JSON text of one; none where there is nothing."""
    if values is None or values == "":
        return []
    listed = _from_json(values) if isinstance(values, str) else values
    if not isinstance(listed, list):
        raise TypeError(
            f'{column} is {shortened(repr(values), 40)}, not a list of texts such as ["Jane Austen", "Austen"]'
        )
    return [text for value in listed for text in _text(value, f"an entry of {column}")]


def _from_json(text: str) -> object:
    """What a JSON text says; nothing where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


@dataclass(frozen=True)
class Layout:
    """How one dataset's rows are laid out: the columns it must and may have, and how to read a row."""

    columns: tuple[str, ...]
    read: Callable[[dict], Fields]
    optional: tuple[str, ...] = ()


LAYOUTS = {
    "popqa": Layout(
        ("question", "possible_answers", "subj", "s_pop"),
        lambda row: _about_subject(row, "possible_answers", subject="subj", asked="prop", popularity="s_pop"),
        ("prop",),
    ),
    "triviaqa": Layout(("question", "answer"), _triviaqa),
    "hotpotqa": Layout(("question", "answer"), lambda row: Fields(_text(row["answer"], "answer"))),
    "nq": Layout(("question", "answer"), lambda row: Fields(_texts(row["answer"], "answer"))),
    "own": Layout(
        ("question", "answers"),
        lambda row: _about_subject(row, "answers", subject="subject", asked="property", popularity="popularity"),
        ("subject", "property", "popularity"),
    ),
}


def normalize(
    raw: pl.DataFrame, layout: str, seed: int, where: str, name_row: Callable[[int], str] | None = None
) -> tuple[pl.DataFrame, dict[str, int]]:
    """One row per usable question, in a seeded order, and how many rows were kept or dropped, by reason.

    `where` is what messages call the rows. `name_row` says where the row with some number stands, if that can be said
    better.
    """
    missing = [column for column in LAYOUTS[layout].columns if column not in raw.columns]
    if missing:
        raise ValueError(
            f"{where} does not have the columns of layout '{layout}': missing {', '.join(missing)}; "
            f"it has {', '.join(raw.columns)}."
        )
    counts: Counter[str] = Counter()
    kept: dict[str, Question] = {}
    for question, verdict in _judged(raw, layout, name_row or (lambda number: f"Row {number} of {where}")):
        text = question["question"].casefold()
        if verdict == ACCEPTED and text in kept:
            verdict = "duplicate question"
            # "Who was the composer of Time?" is asked of two songs; either composer is right.
            kept[text]["gold"] = list(dict.fromkeys(kept[text]["gold"] + question["gold"]))
        counts[verdict] += 1
        if verdict == ACCEPTED:
            kept[text] = question
    ordered = sorted(kept.values(), key=lambda question: seeded_place(seed, question["id"]))
    return pl.DataFrame(ordered, schema=SCHEMA), dict(sorted(counts.items()))


def _judged(raw: pl.DataFrame, layout: str, name_row: Callable[[int], str]) -> Iterator[tuple[Question, str]]:
    columns = [*LAYOUTS[layout].columns, *(column for column in LAYOUTS[layout].optional if column in raw.columns)]
    for number, row in enumerate(raw.select(columns).iter_rows(named=True), start=1):
        try:
            question = _read(row, LAYOUTS[layout].read(row))
        except (AttributeError, TypeError, ValueError) as error:
            types = ", ".join(f"{column} {raw.schema[column]}" for column in columns)
            raise ValueError(
                f"{name_row(number)} cannot be read as layout '{layout}' ({error}); its columns are {types}."
            ) from error
        yield question, next((why for part, why in NEEDED.items() if not question[part]), ACCEPTED)


def _read(row: dict, fields: Fields) -> Question:
    text, subject, asked = (
        _clean(value, column)
        for value, column in ((row["question"], "question"), (fields.subject, "subject"), (fields.property, "property"))
    )
    popularity = fields.popularity
    if len(text) > LONGEST_QUESTION:
        raise ValueError(f"its question has {len(text)} characters; at most {LONGEST_QUESTION} can be asked")
    if popularity is not None and not (type(popularity) is int and abs(popularity) < 2**63):
        raise TypeError(f"its popularity is {shortened(repr(popularity), 40)}, not a whole number below 2 to the 63rd")
    return {
        "id": hashlib.sha256(text.casefold().encode()).hexdigest()[:12],
        "question": text,
        "gold": list(dict.fromkeys(alias for alias in map(_clean, fields.gold) if normal_words(alias))),
        "subject": subject or None,
        "property": asked or None,
        "popularity": popularity,
        "question_form": question_form(text),
        "spans": [asdict(span) for span in exact_question_spans(text, subject)],
    }


def _clean(value: object, column: str = "gold") -> str:
    """A text in order; what is none is refused."""
    return tidy("".join(_text(value, f"its {column}")))


def mostly_english(questions: Iterable[str]) -> bool:
    """Whether at least half of the questions have a word that marks them as English: the rules are made for those."""
    marked = [not ENGLISH.isdisjoint(bare_words(question)) for question in questions]
    return 2 * sum(marked) >= len(marked)


def normalize_file(
    raw: Path | str, target: Path | str, *, dataset: str, layout: str, seed: int, where: str, code: str
) -> None:
    """Write the questions of a dataset's rows. Metadata and log say what was kept or dropped, and why."""
    rows, name_row = read_frame(raw), partial(name_row_of, where)
    questions, counts = normalize(rows, layout, seed=seed, where=where, name_row=name_row)
    log.info("%s", ", ".join(f"{count} {reason}" for reason, count in counts.items()))
    if questions.is_empty():
        dropped = ", ".join(f"{count} rows have {reason}" for reason, count in counts.items())
        raise ValueError(f"{where} has no usable question: {dropped or 'it has no rows'}.")
    odd = [] if mostly_english(questions["question"]) else [NOT_ENGLISH]
    for remark in odd:
        log.warning("%s", remark)
    metadata = provenance(stage="normalize", dataset=dataset, layout=layout, remarks=odd, code=code)
    write_frame(target, questions, metadata | {"counts": canonical_json(counts)})
