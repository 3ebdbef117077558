"""Single questions on the report: what was asked and answered, and what the probe says layer by layer.

The page carries them as JSON, and its own script searches and draws them; without a script, the first few are shown.
Probabilities are whole numbers from 0 to 255, one byte each.
"""

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from markupsafe import Markup

from anchorscope.draw.titles import ANCHOR_TITLES
from anchorscope.extract.axes import Headline
from anchorscope.files.frames import read_frame
from anchorscope.probe.quality import sigmoid
from anchorscope.report.page import SIGNS, render
from anchorscope.summarise.findings import FORM_WORDS
from anchorscope.summarise.grouping import LABELLED_UNDER, mean_logits
from anchorscope.text.forms import QUESTION_FORMS

MOST_EMBEDDED = 2000  # examples on a page
WITHOUT_SCRIPT = 3  # of each anchor, model and dataset
GOLD = 3  # accepted answers that are shown
LONGEST_TEXT = 600  # characters of a question or an answer
P_STEPS = 255  # between a probability of 0 and one of 1
TEXTS = ["id", "question", "spans", "gold", "answer", "exact_start", "exact_answer", "question_form", "right"]
LOGITS_READ = [
    *("component", "position", "intervention", "layer", "id", "hallucinated", "logit_clean_full", "logit_ko_full")
]
JUDGED = {True: "right", False: "hallucinated", None: "refused"}
Answers = Mapping[tuple[str, str], Sequence[str]]  # files, by model and dataset


@dataclass(frozen=True)
class PairExamples:
    """The examples of one model on one dataset, by the titles of both."""

    model: str
    dataset: str
    rows: pl.DataFrame  # those on the page, in the order of their ids
    total: int  # how many there are
    means: Mapping[str, Mapping[str, object]]  # by anchor, of all of them: how many, and P; empty if nothing was probed

    @property
    def title(self) -> str:
        return f"{self.model}, {self.dataset}" + ("" if self.means else " (not probed)")


def read_examples(
    deepest: Path | str,
    delta: Mapping[tuple[str, str], str],
    answers: Answers,
    *,
    models: Mapping[str, str],
    datasets: Mapping[str, str],
    headline: Headline,
) -> list[PairExamples]:
    """The examples to show of every model and dataset; `delta` and `answers` have the files of each."""
    judged = read_frame(deepest).filter(intervention=LABELLED_UNDER)
    everyone = {
        (model, dataset): example_rows(judged.filter(model=model, dataset=dataset), own)
        for (model, dataset), own in answers.items()
    }
    shares = fair_shares({pair: len(rows) for pair, rows in everyone.items()}, MOST_EMBEDDED)
    shown = []
    for pair, rows in everyone.items():
        curves = layer_curves(delta[pair], headline) if "anchor" in rows.columns else None
        titles = models[pair[0]], datasets[pair[1]]
        shown.append(pair_examples(*titles, rows, curves, share=shares[pair]))
    return shown


def example_rows(judged: pl.DataFrame, shards: Iterable[Path | str]) -> pl.DataFrame:
    """Every example of one model and dataset, in the order of ids, which are hashes: nobody chose the first ones.

    `judged` has its rows of the table `deepest`. Where that has none, every answer is an example, and has no anchor.
    """
    texts = pl.concat(read_frame(path, TEXTS) for path in shards).sort("id")
    if judged.is_empty():
        return texts
    anchor = pl.when("question_anchored").then(pl.lit("question")).otherwise(pl.lit("answer"))
    told = judged.select("id", "layer", "p_clean", "p_ko", anchor=anchor)
    return texts.join(told, on="id", maintain_order="left")


def fair_shares(sizes: Mapping[tuple[str, str], int], most: int) -> dict[tuple[str, str], int]:
    """How many of each are shown: `most` in all, as equally shared as their sizes let."""
    shares, left = {}, most
    for taken, (pair, size) in enumerate(sorted(sizes.items(), key=lambda one: one[1])):
        shares[pair] = min(size, left // (len(sizes) - taken))
        left -= shares[pair]
    return shares


def layer_curves(delta: Path | str, headline: Headline) -> pl.DataFrame:
    """P(hallucinated) of every example, `clean` and `cut`: arrays, one value per layer."""
    rows = read_frame(delta, LOGITS_READ).filter(intervention=LABELLED_UNDER, **vars(headline))
    logits = mean_logits(rows).sort("id", "layer")
    ids = logits["id"].unique(maintain_order=True)
    clean, cut = (
        sigmoid(logits[f"logit_{state}_full"].cast(pl.Float64).to_numpy()).reshape(len(ids), -1)
        for state in ("clean", "ko")
    )
    return pl.DataFrame({"id": ids, "clean": clean, "cut": cut})


def pair_examples(
    model: str, dataset: str, rows: pl.DataFrame, curves: pl.DataFrame | None, share: int
) -> PairExamples:
    """The first examples of one model and dataset, with their curves, and the mean curves of both anchors."""
    if curves is None:
        return PairExamples(model, dataset, rows.head(share), total=len(rows), means={})
    drawn = rows.join(curves, on="id", maintain_order="left")
    groups = {anchor: drawn.filter(anchor=anchor) for anchor in ANCHOR_TITLES}
    means = {
        anchor: {"n": len(some), "curve": coded(*(some[state].to_numpy().mean(0) for state in ("clean", "cut")))}
        for anchor, some in groups.items()
        if len(some)
    }
    return PairExamples(model, dataset, drawn.head(share), total=len(rows), means=means)


def coded(clean: np.ndarray, cut: np.ndarray) -> str:
    """Probabilities of all layers, clean ones first, as a byte each, in base64."""
    return base64.b64encode(np.rint(P_STEPS * np.concatenate([clean, cut])).astype(np.uint8)).decode()


def examples_section(pairs: Sequence[PairExamples]) -> Markup:
    """The explorer, with its data; and what is shown in its place where no script runs."""
    examples = [embedded(number, row) for number, pair in enumerate(pairs) for row in pair.rows.iter_rows(named=True)]
    layers = [len(pair.rows["clean"][0]) for pair in pairs if pair.means]
    verdicts, forms = ({example[name] for example in examples} for name in ("verdict", "form"))
    filters = {
        "model": list(dict.fromkeys(pair.model for pair in pairs)),
        "dataset": list(dict.fromkeys(pair.dataset for pair in pairs)),
        "form": [form for form in QUESTION_FORMS if form in forms],
        "verdict": [name for name in JUDGED.values() if name in verdicts],
        "anchor": list(ANCHOR_TITLES) if layers else [],
        "flipped": list(map(str, range(max(layers, default=0)))),
    }
    return render(
        "examples.html",
        data={
            "pairs": [_described(pair) for pair in pairs],
            "examples": examples,
            "anchors": ANCHOR_TITLES,
            "forms": FORM_WORDS,
            "signs": {name: SIGNS[name] for name in JUDGED.values()},
        },
        filters={name: options for name, options in filters.items() if len(options) > 1},
        anchors=ANCHOR_TITLES,
        few=WITHOUT_SCRIPT,
        first=[(pair.title, dict(_first(pair.rows))) for pair in pairs],
        shown=len(examples),
        total=sum(pair.total for pair in pairs),
    )


def _described(pair: PairExamples) -> dict[str, object]:
    """What the script has to know of a model and dataset: its names, the layer of the anchors, and the means."""
    layer = pair.rows["layer"][0] if pair.means else None
    return {"model": pair.model, "dataset": pair.dataset, "layer": layer, "means": pair.means}


def embedded(pair: int, row: Mapping) -> dict[str, object]:
    """An example as the page carries it; texts are in stretches, of which every second one is marked."""
    start = row["exact_start"]
    example = {
        "pair": pair,
        "form": row["question_form"],
        "verdict": JUDGED[row["right"]],
        "question": stretches(row["question"], [(span["start"], span["end"]) for span in row["spans"]]),
        "answer": stretches(row["answer"], [] if start is None else [(start, start + len(row["exact_answer"]))]),
        "gold": gold_text(row["gold"]),
    }
    if "anchor" in row:
        example |= {"anchor": row["anchor"], "curve": coded(np.array(row["clean"]), np.array(row["cut"]))}
    return example


def gold_text(gold: Sequence[str]) -> str:
    """The first accepted answers, and how many more there are."""
    more = f" and {len(gold) - GOLD} more" if len(gold) > GOLD else ""
    return "; ".join(shortened_text(one) for one in gold[:GOLD]) + more


def shortened_text(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"


def stretches(text: str, spans: Iterable[tuple[int, int]]) -> list[str]:
    """A text in stretches, not marked and marked ones by turns: those in `spans` are marked."""
    text = shortened_text(text)
    parts, done = [], 0
    for start, end in sorted(spans):
        start = max(start, done)
        parts += [text[done:start], text[start:end]]
        done = max(end, done)
    return [*parts, text[done:]]


def _first(rows: pl.DataFrame) -> Iterator[tuple[str, list[dict[str, object]]]]:
    """The first examples of each anchor with a heading, or of each verdict where nothing was probed."""
    if "anchor" in rows.columns:
        for anchor, name in ANCHOR_TITLES.items():
            some = rows.filter(anchor=anchor).head(WITHOUT_SCRIPT)
            yield f"{name}, layer {some['layer'][0]}" if len(some) else f"{name}: none here", _plain(some)
    else:
        for right, name in JUDGED.items():
            some = rows.filter(pl.col("right").eq_missing(right)).head(WITHOUT_SCRIPT)
            if len(some):
                yield name.capitalize(), _plain(some)


def _plain(rows: pl.DataFrame) -> list[dict[str, object]]:
    """Examples as the page shows them without a script, with the probabilities at the layer of the anchors."""
    return [
        {**embedded(0, row), "p_clean": row.get("p_clean"), "p_cut": row.get("p_ko")}
        for row in rows.iter_rows(named=True)
    ]
