"""The methods of detection, one record each, in the order of all tables: a new method is added here.

How a method learns is told in terms of `fits.Fits`, which is not imported: pages want names and titles only.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

METHOD_KINDS = {  # what methods read, and what a page calls it
    "text": "text alone",
    "output": "own probabilities",
    "samples": "samples",
    "one_layer": "states of one layer",
    "many_layers": "states of all layers",
    "pathways": "pathways and ablations",
}
OTHERS = "others"  # in the table of transfer: trained on all datasets but the tested one
PROBE = "probe"  # the plain one, which all methods are compared with


@dataclass(frozen=True)
class Method:
    """One way of telling hallucinated answers. A higher score means hallucinated."""

    name: str
    title: str  # what a page calls it
    kind: str
    # From `Fits` to what it says about everyone; of a method that learns nothing, from the row of an example, with its
    # greedy answer and its samples as normalised `texts`, to the example's score.
    score: Callable[[Any], Any]
    needs: str | None = None  # the part of the config without which it is left out
    rivals: tuple[str, ...] = ()  # what a method that knows pathways must be better than

    @property
    def learns(self) -> bool:
        return self.kind not in ("output", "samples")


def without_stop(row: Mapping) -> dict:
    """A row with log probabilities and entropies up to the last token of the answer's text."""
    return {**row, **{name: row[name][: row["answer_final"] + 1] for name in ("logprobs", "entropies")}}


def belong(one: str, other: str) -> bool:
    """Whether two answers are equal, or one contains the other as whole words. No word is part of nothing else."""
    return f" {one} " in f" {other} " or f" {other} " in f" {one} "


def cluster(said: Sequence[str]) -> np.ndarray:
    """The cluster of each answer, [answers], numbered from 0: answers that belong together, directly or over others."""
    numbers = np.arange(len(said))
    for one, other in combinations(range(len(said)), 2):
        if numbers[one] != numbers[other] and belong(said[one], said[other]):
            numbers[numbers == numbers[other]] = numbers[one]
    return np.unique(numbers, return_inverse=True)[1]


def _disagreement(row: Mapping) -> float:
    """The share of samples that do not belong with the greedy answer."""
    greedy, *said = row["texts"]
    return float(1 - np.mean([belong(greedy, words) for words in said]))


def _cluster_entropy(row: Mapping) -> float:
    """In nats, over the clusters of samples."""
    shares = np.bincount(cluster(row["texts"][1:])) / len(row["texts"][1:])
    return -(shares * np.log(shares)).sum()


def _lexical_spread(row: Mapping) -> float:
    """One less the share of their words that two samples have in common (Jaccard's); two empty ones are alike."""
    pairs = combinations([set(text.split()) for text in row["texts"][1:]], 2)
    overlaps = [len(one & other) / len(one | other) if one | other else 1.0 for one, other in pairs]
    return float(1 - np.mean(overlaps)) if overlaps else 0.0


# Generation ends with the stop token, so all that was generated counts. A token that holds the newline and some of the
# text is both. An answer that was cut off at the limit has no stop token.
TOKENS = (
    Method("mean_logprob", "mean log probability", "output", lambda row: -np.mean(row["logprobs"])),
    Method("min_logprob", "lowest log probability", "output", lambda row: -np.min(row["logprobs"])),
    Method("sum_logprob", "total log probability", "output", lambda row: -np.sum(row["logprobs"])),
    Method("mean_entropy", "mean entropy", "output", lambda row: np.mean(row["entropies"])),
    Method("max_entropy", "highest entropy", "output", lambda row: np.max(row["entropies"])),
)


def _of_the_text(method: Method) -> Method:
    """The same of the answer's text alone."""
    return replace(
        method,
        name=f"answer_{method.name}",
        title=f"{method.title.replace('probability', 'prob.')}, no stop",
        score=lambda row: method.score(without_stop(row)),
        needs="answer_scores",
    )


# The ablations of the mixture say nothing about reweighting, which without a shift of attention is the plain probe.
ABLATIONS = ("ensemble", "mop_random_gate", "mop_logit_gate", "mop_random_experts")
UNSHIFTED = ("ensemble", PROBE)
RECORDS = (
    Method("answer_length", "length of the answer", "text", lambda fits: fits.read(fits.reading.lengths[:, None])),
    Method("question_words", "words of the question", "text", lambda fits: fits.read(fits.words("questions"))),
    Method("answer_words", "words of the answer", "text", lambda fits: fits.read(fits.words("answers"))),
    Method("both_words", "words of both", "text", lambda fits: fits.read(fits.words("questions", "answers"))),
    *TOKENS,
    *map(_of_the_text, TOKENS),
    Method("p_true", "P(True)", "output", lambda row: 1 - row["p_true"]),
    Method("confidence", "stated confidence", "output", lambda row: 1 - row["confidence"]),
    Method("agreement", "agreement of samples", "samples", _disagreement, needs="samples"),
    Method("cluster_entropy", "entropy over clusters", "samples", _cluster_entropy, needs="samples"),
    Method("lexical_spread", "spread of words", "samples", _lexical_spread, needs="samples"),
    Method(PROBE, "plain probe", "one_layer", lambda fits: fits.of_logits(fits.plain.logits)),
    Method("mean_difference", "difference of means", "one_layer", lambda fits: fits.mean_difference()),
    Method("saplma", "SAPLMA", "one_layer", lambda fits: fits.network()),
    Method(
        "question_probe",
        "probe of the question",
        "one_layer",
        lambda fits: fits.read(fits.reading.reweighted.question_last),
    ),
    Method("best_layer", "best layer's probe", "one_layer", lambda fits: fits.best_layer()),
    Method("mean_logit", "mean over layers", "many_layers", lambda fits: fits.of_logits(fits.probes.logits.mean(0))),
    Method("stacked", "stacked layers", "many_layers", lambda fits: fits.stacked()),
    Method("mop", "MoP", "pathways", lambda fits: fits.mixture("published", "published"), rivals=ABLATIONS),
    Method("mop_honest", "MoP, honest", "pathways", lambda fits: fits.mixture("honest", "honest"), rivals=ABLATIONS),
    Method("mop_random_gate", "MoP, random gate", "pathways", lambda fits: fits.mixture("random", "published")),
    Method("mop_logit_gate", "MoP, logit gate", "pathways", lambda fits: fits.mixture("logit", "published")),
    Method("mop_random_experts", "MoP, random experts", "pathways", lambda fits: fits.mixture("published", "random")),
    Method("ensemble", "ensemble of probes", "pathways", lambda fits: fits.ensemble()),
    Method("pr", "PR", "pathways", lambda fits: fits.reweighted("published"), rivals=UNSHIFTED),
    Method("pr_honest", "PR, honest", "pathways", lambda fits: fits.reweighted("honest"), rivals=UNSHIFTED),
)
METHODS = {method.name: method for method in RECORDS}
METHOD_TITLES = {name: method.title for name, method in METHODS.items()}
LEARNT = [name for name, method in METHODS.items() if method.learns]
