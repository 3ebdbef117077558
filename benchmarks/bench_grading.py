"""How often the grade of an answer is wrong, by a reader's judgement.

    python benchmarks/bench_grading.py results --to-read read.jsonl
    python benchmarks/bench_grading.py results --judged judged.jsonl

Three graders: the label that stands in the file, the rules of this version, and exact match as in TriviaQA's own
evaluation: the normalised answer, or its short answer, equals an accepted one.

`--to-read` writes what is to be judged, one line per answer, in random order and without any grade: every answer on
which two graders differ, and of each dataset 75 that the rules call right and 75 that they call wrong, drawn by a seed
(all, where there are fewer). A line of `--judged` has `dataset`, `id` and `right`: true, false, or null where it cannot
be told. A folder of answers does in place of `results`; the file, or the folder of its shards, names the dataset.
"""

import argparse
import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from common import machine, report

from anchorscope.text.grading import label
from anchorscope.text.normal_words import bare_words
from anchorscope.text.short_answer import short_answer

PER_STRATUM = 75
OTHERS = ("in_file", "exact_match")  # graders beside the rules
Key = tuple[str, str]  # dataset and id


@dataclass(frozen=True)
class Graded:
    """An answer and what each grader calls it; None for a refusal."""

    dataset: str
    id: str
    question: str
    gold: list[str]
    answer: str
    in_file: bool | None
    by_rules: bool | None
    exact_match: bool

    @property
    def key(self) -> Key:
        return self.dataset, self.id

    def differs(self, grader: str) -> bool:
        """Whether a grader calls it otherwise than the rules."""
        return bool(getattr(self, grader)) is not bool(self.by_rules)


def read(path: Path) -> list[Graded]:
    """The answers of a file, graded anew."""
    dataset = path.parent.name if path.stem.isdigit() else path.stem
    wanted = ["id", "question", "gold", "answer", "right"]
    return [
        Graded(
            dataset,
            row["id"],
            row["question"],
            row["gold"],
            row["answer"],
            in_file=row["right"],
            by_rules=label(row["answer"], row["gold"], row["question"]).right,
            exact_match=matches_exactly(row["answer"], row["gold"], row["question"]),
        )
        for row in pl.read_parquet(path, columns=wanted).iter_rows(named=True)
    ]


def matches_exactly(answer: str, gold: list[str], question: str) -> bool:
    if not bare_words(answer):
        return False
    short = short_answer(answer, question)
    said = (bare_words(answer), bare_words(answer[short.start : short.end]))
    return any(bare_words(alias) in said for alias in gold)


def drawn(answers: Iterable[Graded], seed: int) -> list[Graded]:
    """Of each dataset as many that the rules call right as wrong; what one answer is called moves no other."""
    strata: dict[tuple[str, bool | None], list[Graded]] = {}
    for answer in sorted(answers, key=lambda one: place(one, f"draw {seed}")):
        strata.setdefault((answer.dataset, answer.by_rules), []).append(answer)
    return [answer for (_, called), some in strata.items() if called is not None for answer in some[:PER_STRATUM]]


def place(answer: Graded, order: str) -> bytes:
    """A place in a random order, which hangs on the answer alone."""
    return hashlib.sha256("\n".join((order, *answer.key)).encode()).digest()


def write_to_read(answers: list[Graded], seed: int, target: Path) -> None:
    doubtful = [one for one in answers if any(map(one.differs, OTHERS))]
    chosen = {answer.key: answer for answer in [*drawn(answers, seed), *doubtful]}
    with target.open("w", encoding="utf-8") as file:
        for answer in sorted(chosen.values(), key=lambda one: place(one, "read")):  # the draw's order tells the stratum
            shown = {name: getattr(answer, name) for name in ("dataset", "id", "question", "gold", "answer")}
            file.write(f"{json.dumps(shown, ensure_ascii=False)}\n")


def agreement(answers: list[Graded]) -> list[dict]:
    """One row per dataset: how many answers each grader calls right, and on how many they differ."""
    rows = []
    for dataset in [*dict.fromkeys(answer.dataset for answer in answers), "all"]:
        mine = [answer for answer in answers if dataset in (answer.dataset, "all")]
        rows.append(
            {
                "dataset": dataset,
                "answers": len(mine),
                "refused": sum(answer.by_rules is None for answer in mine),
                "right in file": sum(answer.in_file is True for answer in mine),
                "right by rules": sum(answer.by_rules is True for answer in mine),
                "right by exact match": sum(answer.exact_match for answer in mine),
                "file and rules differ": sum(answer.differs("in_file") for answer in mine),
                "match and rules differ": sum(answer.differs("exact_match") for answer in mine),
            }
        )
    return rows


def errors(answers: list[Graded], judged: dict[Key, bool | None], seed: int) -> list[dict]:
    """One row per dataset and call of the rules, from the drawn answers; then both graders where another differs."""
    sample = drawn(answers, seed)
    rows = []
    for dataset in [*dict.fromkeys(answer.dataset for answer in answers), "all"]:
        for called, word in ((True, "right"), (False, "wrong")):
            mine = [one for one in sample if dataset in (one.dataset, "all") and one.by_rules is called]
            total = sum(one.by_rules is called for one in answers if dataset in (one.dataset, "all"))
            rows.append({"answers": f"{dataset}, called {word}", "of": total} | rate(mine, judged, "by_rules"))
    for other in OTHERS:
        mine = [one for one in answers if one.differs(other)]
        for grader in (other, "by_rules"):
            named = f"{other} and by_rules differ: {grader}"
            rows.append({"answers": named, "of": len(mine)} | rate(mine, judged, grader))
    return rows


def rate(answers: list[Graded], judged: dict[Key, bool | None], grader: str) -> dict:
    """How many of some answers a grader calls otherwise than the reader, with Wilson's interval of 95 %."""
    read = [answer for answer in answers if answer.key in judged]
    told = [answer for answer in read if judged[answer.key] is not None]
    wrong = sum(bool(getattr(answer, grader)) is not judged[answer.key] for answer in told)
    low, high = wilson(wrong, len(told))
    return {
        "drawn": len(answers),
        "read": len(read),
        "cannot be told": len(read) - len(told),
        "errors": wrong,
        "%": 100 * wrong / len(told) if told else None,
        "low": low,
        "high": high,
    }


def wilson(hits: int, tries: int, z: float = 1.96) -> tuple[float | None, float | None]:
    """Both ends of the interval of a share, in per cent."""
    if not tries:
        return None, None
    share, spread = hits / tries, z * z / tries
    middle = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * (share * (1 - share) / tries + spread / tries / 4) ** 0.5
    return 100 * max(0.0, middle - half), 100 * min(1.0, middle + half)


def read_judged(path: Path) -> dict[Key, bool | None]:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {(row["dataset"], row["id"]): row["right"] for row in rows}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="the results folder of a run of one model, or a folder of answers")
    parser.add_argument("--to-read", type=Path, help="write what is to be judged to this JSONL file")
    parser.add_argument("--judged", type=Path, help="a JSONL file with a reader's judgements")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--record", type=Path, help="write the results to this JSON file")
    options = parser.parse_args()
    folder = options.results / "answers"
    files = sorted((folder if folder.is_dir() else options.results).rglob("*.parquet"))
    answers = [answer for path in files for answer in read(path)]
    if not answers:
        parser.error(f"{options.results} has no answers")
    twice = [key for key, count in Counter(answer.key for answer in answers).items() if count > 1]
    if twice:
        parser.error(f"question {twice[0][1]} of {twice[0][0]} has several answers; give the answers of one model")
    if options.to_read:
        write_to_read(answers, options.seed, options.to_read)
    rows = errors(answers, read_judged(options.judged), options.seed) if options.judged else agreement(answers)
    report(rows, machine(), options.record)
