"""Questions and answers on the report: what each anchor's examples look like, the first of them and not the best."""

from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path

import polars as pl

from anchorscope.files.frames import read_frame

COUNT = 10  # of each anchor, model and dataset
GOLD = 3  # accepted answers that are shown
COLUMNS = ["id", "question", "spans", "gold", "answer", "exact_start", "exact_answer"]
ANCHORED = {True: "Question-Anchored", False: "Answer-Anchored"}

EXPLAINED = f"""<p class="soft">Of every model, dataset and anchor the first {COUNT} in the order of their ids, which
are hashes: chosen by nobody. Marked are the exact question words, which the knockout hides, and the exact answer, which
is probed. P is the probe's probability that the answer is hallucinated, clean → question cut, at the layer where
the Question-Anchored mean is lowest; anchors are by verdict flip at that layer.</p>"""


def choose(deepest: pl.DataFrame) -> pl.DataFrame:
    """The first examples by id of every model, dataset and anchor; an id is a hash, so that nobody chose them."""
    keys = ["model", "dataset", "question_anchored"]
    chosen = deepest.filter(intervention="exact_question").sort(*keys, "id")
    return chosen.group_by(keys, maintain_order=True).head(COUNT)


def with_answers(chosen: pl.DataFrame, shards: Iterable[Path | str]) -> pl.DataFrame:
    """The examples of one model and dataset with what was asked and answered, from its answers files."""
    wanted = chosen["id"].implode()
    answers = [read_frame(path, COLUMNS).filter(pl.col("id").is_in(wanted)) for path in shards]
    return chosen.join(pl.concat(answers), on="id", maintain_order="left")


def examples_section(found: Mapping[tuple[str, str], pl.DataFrame]) -> str:
    """Examples by the titles of model and dataset, the first of these unfolded."""
    parts = [EXPLAINED]
    for number, ((model, dataset), examples) in enumerate(found.items()):
        groups = "\n".join(_group(title, examples.filter(question_anchored=is_q)) for is_q, title in ANCHORED.items())
        unfolded = "" if number else " open"
        heading = f"<summary>{escape(model)}, {escape(dataset)}</summary>"
        parts.append(f'<details{unfolded}>{heading}\n<div class="pair">{groups}</div>\n</details>')
    return "\n".join(parts)


def _group(title: str, examples: pl.DataFrame) -> str:
    items = "\n".join(map(_example, examples.iter_rows(named=True)))
    at = f", layer {examples['layer'][0]}" if len(examples) else ": none"
    return f'<div><h3>{title}{at}</h3>\n<ul class="asked">{items}</ul></div>'


def _example(row: Mapping) -> str:
    question = marked(row["question"], [(span["start"], span["end"]) for span in row["spans"]])
    start = row["exact_start"]
    answer = marked(row["answer"], [] if start is None else [(start, start + len(row["exact_answer"]))])
    verdict = "hallucinated" if row["hallucinated"] else "right"
    more = f" and {len(row['gold']) - GOLD} more" if len(row["gold"]) > GOLD else ""
    gold = escape("; ".join(row["gold"][:GOLD]))
    return f"""<li><p>{question}</p>
<p>{answer} <span class="badge {verdict}">{verdict}</span></p>
<p class="soft">Gold: {gold}{more}. P(hallucinated) {row["p_clean"]:.2f} → {row["p_ko"]:.2f}</p></li>"""


def marked(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """A text as HTML, with some stretches of its characters marked."""
    parts, done = [], 0
    for start, end in sorted(spans):
        start = max(start, done)
        parts += [escape(text[done:start]), f"<mark>{escape(text[start:end])}</mark>"]
        done = end
    return "".join(parts) + escape(text[done:])
