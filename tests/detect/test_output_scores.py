"""What the model's own output says, held to plain loops and to cases counted by hand."""

from copy import deepcopy
from math import log

import numpy as np
import pytest

from anchorscope.answer.answers import answer_ends, grade
from anchorscope.detect.methods import belong, cluster
from anchorscope.detect.reading import output_scores

# How an answer ends, by what is generated after " New York"; and how many of these tokens belong to its text.
ENDINGS = {
    "a newline": (["\n"], 0),
    "two newlines in a token": (["\n\n"], 0),
    "the end of text": (["<|im_end|>"], 0),
    "a space, then a newline": ([" ", "\n"], 0),
    "a newline in the token of a full stop": ([".\n"], 1),
    "the limit": ([".", " USA"], 2),
}


@pytest.mark.parametrize(("ending", "of_text"), ENDINGS.values(), ids=ENDINGS)
def test_the_token_that_ended_the_answer_counts_unless_it_is_left_out_by_name(tokenizer, ending, of_text):
    tokenizer = deepcopy(tokenizer)
    tokenizer.eos_token = "<|im_end|>"  # which some versions of transformers do not read from the file
    tokenizer.add_tokens([".\n"])  # as the vocabularies of Llama 3 and Qwen have it
    ids = tokenizer(" New York")["input_ids"]
    assert len(ids) == 2
    vocabulary = tokenizer.batch_decode([[token] for token in range(len(tokenizer))])
    ids += [vocabulary.index(text) for text in ending]
    assert (ids[-1] in answer_ends(tokenizer)) == (ending[-1] != " USA"), "only at the limit nothing ends the answer"
    logprobs, entropies = [-0.5, -1.5, -3.0, -0.25], [0.25, 0.75, 0.5, 2.0]
    row = grade(tokenizer, ids, gold=["New York"], question="Which city is it?")
    row |= {"logprobs": logprobs[: len(ids)], "entropies": entropies[: len(ids)], "p_true": 0.5, "confidence": 0.5}
    found = output_scores([row], answer_scores=True)
    assert len(found) == 2 * 5 + 2
    assert list(output_scores([row], answer_scores=False)) == [name for name in found if not name.startswith("answer_")]
    for prefix, count in (("", 2 + len(ending)), ("answer_", 2 + of_text)):
        expected = {
            "mean_logprob": -sum(logprobs[:count]) / count,
            "min_logprob": -min(logprobs[:count]),
            "sum_logprob": -sum(logprobs[:count]),
            "mean_entropy": sum(entropies[:count]) / count,
            "max_entropy": max(entropies[:count]),
        }
        for name, value in expected.items():
            assert found[f"{prefix}{name}"].tolist() == pytest.approx([value])


def row_of(answer: str, **others: object) -> dict:
    """What is known of an answer of one token."""
    known = {"answer": answer, "answer_final": 0, "logprobs": [-1.0], "entropies": [1.0]}
    return known | {"p_true": 0.5, "confidence": 0.5} | others


def test_what_the_model_says_of_its_answer_counts_against_hallucination():
    found = output_scores([row_of("", p_true=0.9, confidence=1.0), row_of("", p_true=0.25, confidence=0.0)], False)
    assert found["p_true"].tolist() == pytest.approx([0.1, 0.75])
    assert found["confidence"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        ("paris", "paris", True),
        ("paris france", "paris", True),
        ("paris", "in paris france", True),
        ("par", "paris", False),
        ("new york", "york new", False),
        ("", "", True),
        ("", "paris", False),
    ],
)
def test_answers_belong_together_when_one_contains_the_other_as_whole_words(one, other, together):
    assert belong(one, other) == together
    assert belong(other, one) == together


def test_clusters_connect_over_others():
    said = ["john smith", "john", "mary", "smith", "smith jones", "lee"]
    assert cluster(said).tolist() == [0, 0, 1, 0, 0, 2], "john and jones meet over smith"


def slow_clusters(said: list[set[int]]) -> int:
    """How many parts a graph has, given the neighbours of each of its points."""
    unseen, parts = set(range(len(said))), 0
    while unseen:
        parts, edge = parts + 1, {unseen.pop()}
        while edge:
            edge = {other for one in edge for other in said[one]} & unseen
            unseen -= edge
    return parts


def test_clusters_are_the_parts_of_the_graph_of_answers_that_belong_together():
    random = np.random.default_rng(0)
    for _ in range(50):
        said = [" ".join(random.choice(list("abcdef"), random.integers(1, 4))) for _ in range(8)]
        graph = [{other for other in range(8) if belong(said[one], said[other])} for one in range(8)]
        found = cluster(said)
        assert len(set(found.tolist())) == slow_clusters(graph)
        assert all(found[one] == found[other] for one in range(8) for other in graph[one])


def test_samples_are_compared_with_the_greedy_answer_and_with_each_other():
    samples = [["The Paris", "paris, France!", "London", "london"], ["Rome", "rome", "Rome.", "ROME"]]
    answered = zip(["Paris", "Milan"], samples, strict=True)
    found = output_scores([row_of(answer, samples=some) for answer, some in answered], answer_scores=False)
    assert found["agreement"].tolist() == [0.5, 1.0]
    assert found["cluster_entropy"].tolist() == pytest.approx([log(2), 0.0])
    pairs = [1 / 2, 0, 0, 0, 0, 1]  # of the first: paris with paris france, and london with london
    assert found["lexical_spread"].tolist() == pytest.approx([1 - np.mean(pairs), 0.0])
