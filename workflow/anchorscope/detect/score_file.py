"""Scores answers in JSON Lines or CSV: each row comes back with the probability that its answer is hallucinated.

What takes seconds to import is imported after everything that can be said without.
"""

import json
import math
import os
import sys
from pathlib import Path

from anchorscope.detect.named_detector import check_detector_file
from anchorscope.files.atomic import write_text
from anchorscope.files.faults import check_file, fault_of_file
from anchorscope.models.manifest import Manifest
from anchorscope.questions.local_rows import json_rows, name_row, read_csv
from anchorscope.text.normal_words import tidy

ASKED = ("question", "answer")  # the keys that each row must have
SCORE = "hallucinated"  # the key that is added
STANDARD_INPUT = "-"
EXAMPLE_LINE = '{"question": "who wrote Emma", "answer": "Jane Austen"}'


def score_file(
    questions: str,
    detector: Path | str,
    model: Path,
    target: Path | None,
    *,
    dtype: str,
    threads: int,
    batch_tokens: int | None,
) -> None:
    """Score the rows of a file, or of the standard input, to lines of JSON in a file or on the standard output.

    So many `batch_tokens` are computed together; None for what suits the device.
    """
    if target is not None:
        target = _checked(target)
    rows = read_rows(questions)
    check_detector_file(detector)
    manifest = None if model.is_dir() else _manifest(model)

    from anchorscope.detect.detector import load_detector
    from anchorscope.models.describe import describe
    from anchorscope.models.loading import leave_gpus, load_fetched_tokenizer, load_model

    loaded = load_detector(detector)
    # Weights in a folder are not traced back to anything.
    described = manifest or describe(model, name=model.resolve().name, source={"folder": str(model)})
    if described.revision and described.revision != loaded.about.revision:
        raise ValueError(
            f"The detector is for the weights {loaded.about.revision} of {loaded.about.model}, but {model} has "
            f"{described.revision}; use the model that it was trained on."
        )
    tokenizer = load_fetched_tokenizer(described)
    weights = load_model(described, loaded.about.dtype if dtype == "auto" else dtype, threads)
    texts = [[row[name] for row in rows] for name in ASKED]
    scores = loaded.score(weights, tokenizer, *texts, batch_tokens=batch_tokens).tolist()
    leave_gpus(weights)
    # An empty answer or a refusal has no probability.
    with_scores = [
        {**row, SCORE: None if math.isnan(score) else score} for row, score in zip(rows, scores, strict=True)
    ]
    text = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in with_scores)
    if target is None:
        sys.stdout.buffer.write(text.encode())
    else:
        write_text(target, text)


def _checked(target: Path) -> Path:
    """Where scores go: through links to a plain file, which need not be there yet."""
    real = Path(os.path.realpath(target))
    if real.exists() and (fault := fault_of_file(real)):
        raise ValueError(f"{target} {fault}; name a plain file for the scores, or none for the standard output.")
    if not os.access(next(folder for folder in real.parents if folder.exists()), os.W_OK):
        raise ValueError(f"{target} lies in a folder that may not be written; name another for the scores.")
    return real


def read_rows(questions: str) -> list[dict]:
    """The rows of a file, each with a question and an answer. One without them is refused with its line's number."""
    if questions == STANDARD_INPUT:
        return _line_rows(sys.stdin.buffer.read(), "the standard input")
    check_file(questions, "name a file of JSON Lines or CSV, or - for the standard input")
    if Path(questions).suffix.lower() == ".csv":
        return _table_rows(questions)
    return _line_rows(Path(questions).read_bytes(), questions)


def _table_rows(path: str) -> list[dict]:
    """The rows of a CSV file, read as question files are. An empty answer is one: it gets no score."""
    table = read_csv(path)
    missing = [name for name in ASKED if name not in table.column_names]
    if missing:
        raise ValueError(
            f"The first line of {path} names no column {missing[0]!r}; each row needs {' and '.join(ASKED)}."
        )
    if SCORE in table.column_names:
        raise ValueError(f"The first line of {path} names a column {SCORE!r}; rename it, for the score goes there.")
    rows = [row | {name: row[name] or "" for name in ASKED} for row in table.to_pylist()]
    for number, row in enumerate(rows, 1):
        if fault := _fault(row):
            raise ValueError(f"{name_row(path, number)} {fault}.")
    return rows


def _line_rows(data: bytes, where: str) -> list[dict]:
    rows = []
    for number, row in json_rows(data, where, EXAMPLE_LINE):
        if fault := _fault(row):
            raise ValueError(f"Line {number} of {where} {fault}.")
        rows.append(row)
    return rows


def _fault(row: dict) -> str | None:
    """Why a row cannot be scored, or cannot come back with its score; None if it can."""
    for name in ASKED:
        if not isinstance(row.get(name), str):
            return f"has no text as its {name!r}"
    if not tidy(row["question"]):
        return "has an empty question"
    try:
        json.dumps(row, allow_nan=False)
    except ValueError:
        return "holds a number that is not finite, which JSON has no word for"
    return f"has a key {SCORE!r} already; rename it, for the score goes there" if SCORE in row else None


def _manifest(model: Path) -> Manifest:
    check_file(model, "name a model's folder, or its manifest such as results/models/mine.json")
    return Manifest.read(model)
