"""Scores that nothing has to learn: what the model's own output says about an answer. Higher means hallucinated."""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from anchorscope.detect.names import (
    AGREEMENT,
    CLUSTER_ENTROPY,
    CONFIDENCE,
    LEXICAL_SPREAD,
    MAX_ENTROPY,
    MEAN_ENTROPY,
    MEAN_LOGPROB,
    MIN_LOGPROB,
    P_TRUE,
    SUM_LOGPROB,
    TOKENS,
    WITHOUT_STOP,
)
from anchorscope.text.normal_words import bare_words

Scores = dict[str, np.ndarray]  # by method: [examples]


def token_scores(answers: Sequence[Mapping]) -> Scores:
    """From the log probabilities and entropies of all tokens of each answer, the stop token included.

    Generation ends with the stop token, so all that was generated counts. A token that holds the newline and some of
    the text is both. An answer that was cut off at the limit has no stop token.
    """
    logprobs, entropies = ([np.array(row[name], float) for row in answers] for name in ("logprobs", "entropies"))
    return {
        MEAN_LOGPROB: np.array([-one.mean() for one in logprobs]),
        MIN_LOGPROB: np.array([-one.min() for one in logprobs]),
        SUM_LOGPROB: np.array([-one.sum() for one in logprobs]),
        MEAN_ENTROPY: np.array([one.mean() for one in entropies]),
        MAX_ENTROPY: np.array([one.max() for one in entropies]),
    }


def scores_without_stop(answers: Sequence[Mapping]) -> Scores:
    """The same up to the last token of the answer's text."""
    texts = [{name: row[name][: row["answer_final"] + 1] for name in ("logprobs", "entropies")} for row in answers]
    found = token_scores(texts)
    return {name: found[counted] for name, counted in zip(WITHOUT_STOP, TOKENS, strict=True)}


def asked_scores(asked: Sequence[Mapping]) -> Scores:
    """From what the model says when it is asked about its answer."""
    return {name: 1 - np.array([row[name] for row in asked], float) for name in (P_TRUE, CONFIDENCE)}


def sample_scores(answers: Sequence[str], samples: Sequence[Sequence[str]]) -> Scores:
    """From how far sampled answers agree with the greedy one and with each other."""
    rows = [_compare(answer, some) for answer, some in zip(answers, samples, strict=True)]
    return {name: np.array(values) for name, values in zip(SAMPLE_METHODS, zip(*rows, strict=True), strict=True)}


SAMPLE_METHODS = (AGREEMENT, CLUSTER_ENTROPY, LEXICAL_SPREAD)


def _compare(answer: str, samples: Sequence[str]) -> tuple[float, float, float]:
    """Of one example: one less the agreement, the entropy over clusters in nats, and the lexical spread."""
    greedy, said = _words(answer), [_words(sample) for sample in samples]
    agree = np.mean([belong(greedy, words) for words in said])
    shares = np.bincount(cluster(said)) / len(said)
    pairs = [_overlap(set(one), set(other)) for one, other in combinations(said, 2)]
    return float(1 - agree), float(-(shares * np.log(shares)).sum()), float(1 - np.mean(pairs)) if pairs else 0.0


def _words(text: str) -> tuple[str, ...]:
    return tuple(bare_words(text))


def belong(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether two answers are equal, or one contains the other as whole words. No word is part of nothing else."""
    if not one or not other:
        return one == other
    return f" {' '.join(one)} " in f" {' '.join(other)} " or f" {' '.join(other)} " in f" {' '.join(one)} "


def cluster(said: Sequence[tuple[str, ...]]) -> np.ndarray:
    """The cluster of each answer, [answers], numbered from 0: answers that belong together, directly or over others."""
    numbers = np.arange(len(said))
    for one, other in combinations(range(len(said)), 2):
        if numbers[one] != numbers[other] and belong(said[one], said[other]):
            numbers[numbers == numbers[other]] = numbers[one]
    return np.unique(numbers, return_inverse=True)[1]


def _overlap(one: set[str], other: set[str]) -> float:
    """Jaccard's: the share of their words that two answers have in common; two empty ones are alike."""
    return len(one & other) / len(one | other) if one | other else 1.0
