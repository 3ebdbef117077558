"""What text alone tells: readers of words and lengths, beside the probes of the first and of the best layer.

A reader is a probe that sees no activation: the same regression, on the same folds, with its strength chosen in the
same way. It reads which words and pairs of neighbouring words a text has, or one number.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain, pairwise

import numpy as np
import polars as pl
import torch
from torch import Tensor

from anchorscope.probe.examples import Examples, enough, examples_of
from anchorscope.probe.logistic import Marks
from anchorscope.probe.quality import auc_gain, auc_with_interval
from anchorscope.probe.strengths import cross_fitting, fit_training_sets, own_fold
from anchorscope.text.normal_words import bare_words

DIGITS = 9  # of logits that are read from text
MOST_WORDS = 4000  # words and pairs that a reader knows: the most frequent
LOGITS_NEEDED = ["repeat", "id", "component", "position", "intervention", "layer", "logit_clean_full"]
TEXT_NEEDED = [
    *("id", "right", "subject", "popularity", "question", "answer"),
    *("exact_first", "exact_last", "answer_final"),
]


def text_table(
    delta: pl.DataFrame, layers: pl.DataFrame, answers: pl.DataFrame, folds: int, seed: int, where: str
) -> pl.DataFrame:
    """How well each reader ranks, and how much better the best layer's probe does: one row per place and reader.

    `delta` and `layers` are the tables of one model on one dataset, and `answers` has all its answers. Folds are those
    of the first repeat.
    """
    clean = delta.filter(intervention="exact_question", repeat=0).sort("layer", maintain_order=True)
    places = clean.partition_by("component", "position", as_dict=True)
    ids = next(iter(places.values())).filter(layer=0).select("id")  # the same at every place
    keys = ids.join(answers, on="id", how="left", maintain_order="left").to_dicts()
    examples = enough(examples_of(keys, folds=folds, repeats=1, seed=seed, where=where))
    read, tables = read_texts(keys, examples), []
    for (component, position), rows in places.items():
        logits = rows["logit_clean_full"].cast(pl.Float64).to_numpy().reshape(-1, len(ids))  # [layers, examples]
        quality = layers.filter(component=component, position=position, intervention="clean").sort("layer")
        losses = np.array(quality["inner_losses"].to_list())  # [layers, folds]
        by_reader = read | {
            "first_layer": logits[0],
            "best_layer": best_layer(logits, losses, examples.splits[0].folds),
        }
        names = [pl.lit(component).alias("component"), pl.lit(position).alias("position")]
        tables.append(compared(by_reader, examples).select(*names, pl.all()))
    return pl.concat(tables)


def read_texts(rows: Sequence[Mapping], examples: Examples) -> dict[str, np.ndarray]:
    """The out-of-fold logits [examples] of every reader of text."""
    question, answer = (presence([row[name] for row in rows]) for name in ("question", "answer"))
    seen: dict[str, Tensor | Marks] = {
        "question_words": question,
        "answer_words": answer,
        "both_words": question.beside(answer),
        "answer_length": torch.tensor([[[row["answer_final"] + 1.0] for row in rows]], dtype=torch.float64),
        "exact_length": torch.tensor(
            [[[row["exact_last"] - row["exact_first"] + 1.0] for row in rows]], dtype=torch.float64
        ),
    }
    return {name: read_features(features, examples) for name, features in seen.items()}


def presence(texts: Sequence[str], known: Sequence[str] | None = None) -> Marks:
    """Which words and pairs of neighbouring words each text has.

    The words are those of the texts that are `known`, which are all of them unless others are given. A word that only
    one of these has tells nothing about another. If there is no other word, one column is 0 for all. How often a word
    occurs in other texts need not weigh it: a probe standardises what it reads.
    """
    said = [_words_and_pairs(text) for text in texts]
    counts = Counter(chain.from_iterable(said if known is None else map(_words_and_pairs, known)))
    places = {word: place for place, (word, count) in enumerate(counts.most_common(MOST_WORDS)) if count > 1}
    found = [(row, places[word]) for row, words in enumerate(said) for word in words if word in places]
    rows, columns = torch.tensor(found, dtype=torch.long).reshape(-1, 2).T
    return Marks(rows, columns, count=len(texts), width=max(1, len(places)))


@lru_cache(maxsize=2**16)
def _words_and_pairs(text: str) -> tuple[tuple[str, ...], ...]:
    """Each once, in the order of the text."""
    words = bare_words(text)
    return tuple(dict.fromkeys([*zip(words), *pairwise(words)]))


def read_features(features: Tensor | Marks, examples: Examples) -> np.ndarray:
    """Out-of-fold logits [examples] of a probe on features [1, examples, width].

    Texts with the same features are tied: without the last digits, in which rounding would put them in some order.
    """
    labels, folds = torch.from_numpy(examples.hallucinated).double(), torch.from_numpy(examples.splits[0].folds)
    probes = fit_training_sets(features, labels, cross_fitting(folds)).probes
    return own_fold(probes.logits(features)[0], folds).numpy().round(DIGITS)


def best_layer(logits: np.ndarray, losses: np.ndarray, folds: np.ndarray) -> np.ndarray:
    """The logits [examples] of the layer that is best on the inner folds of each example's training data.

    From the out-of-fold `logits` [layers, examples] and the inner `losses` [layers, folds] of every layer. The
    example's own fold has no part in the choice.
    """
    return logits[losses.argmin(0)[folds], np.arange(logits.shape[1])]


def compared(by_reader: Mapping[str, np.ndarray], examples: Examples) -> pl.DataFrame:
    """The AUC of each reader's logits [examples], and the gain of `best_layer` over it; none over itself."""
    logits = np.array(list(by_reader.values()))
    gains = auc_gain(by_reader["best_layer"], logits, positive=examples.hallucinated, clusters=examples.clusters)
    table = pl.DataFrame(
        {
            "reader": list(by_reader),
            **auc_with_interval(logits[None], examples.hallucinated, examples.clusters),
            **gains,
        }
    )
    others = pl.col("reader") != "best_layer"
    return table.with_columns(pl.when(others).then(pl.col(name)).alias(name) for name in gains)
