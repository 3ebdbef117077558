"""Experiments replace the tokens that they say, and what they keep equals a plain pass over those tokens."""

import copy
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest
import torch

from anchorscope.answer.prompts import encode
from anchorscope.engine import self_check
from anchorscope.engine.door import Engine
from anchorscope.engine.packs import grow_tree
from anchorscope.engine.work import Variant
from anchorscope.extract.axes import COMPONENTS, POSITIONS, REPLACING
from anchorscope.extract.interventions import QuestionTokens, patch_question, patch_random, replaced_prompt
from anchorscope.extract.job import run_workload
from anchorscope.extract.sequences import build_replaced, build_workload
from anchorscope.extract.store import ActivationReader, ActivationWriter
from few_examples import examples, longest, prompts
from reference import plain_states
from rounding import assert_same, of_a_pass
from small_things import FAMILIES, tiny_model

OWN = QuestionTokens("own", 5, ids=[0, 10, 11, 12, 13, 14, 1], exact=[2, 3, 5], others=[1, 4])


def donor(exact: list[int], others: list[int]) -> QuestionTokens:
    """A question whose tokens are numbered from 100."""
    return QuestionTokens("donor", 7, ids=list(range(100, 110)), exact=exact, others=others)


@pytest.mark.parametrize(
    ("exact", "ids", "kept"),
    [
        ([2, 4, 6], [0, 10, 102, 104, 13, 106, 1], 0),
        ([1, 2, 4, 6], [0, 10, 102, 104, 13, 106, 1], 0),  # the surplus is dropped from the front
        ([6], [0, 10, 11, 12, 13, 106, 1], 2),  # what is missing stays as it is
        ([], [0, 10, 11, 12, 13, 14, 1], 3),
    ],
)
def test_exact_tokens_become_those_of_the_donor_the_last_ones_the_last(exact, ids, kept):
    found = patch_question(OWN, donor(exact, others=[1]))
    assert (found.ids, found.count, found.kept) == (ids, 3 - kept, kept)


def test_the_control_replaces_as_many_others_by_others_and_says_how_many_it_could_not():
    both = patch_random(OWN, donor(exact=[2, 4], others=[7, 8, 9]))
    assert (both.count, both.kept) == (2, 0)
    assert [token for place, token in enumerate(both.ids) if place not in OWN.others] == [0, 11, 12, 14, 1]
    assert {both.ids[1], both.ids[4]} < {107, 108, 109}
    assert both.ids[1] < both.ids[4], "in the donor's order"
    assert patch_random(OWN, donor(exact=[2, 3, 4, 5], others=[7, 8, 9])).kept == 1, "two others, three exact"
    alone = patch_random(OWN, donor(exact=[2, 4], others=[7]))
    assert (alone.count, alone.kept) == (1, 1)
    assert sum(one != other for one, other in zip(alone.ids, OWN.ids, strict=True)) == 1
    assert patch_random(OWN, donor(exact=[2, 4], others=[7])) == alone, "a draw can be repeated"


@pytest.mark.parametrize(("bos", "before"), [(3, [3]), (None, [])])
def test_what_stands_before_the_answer(bos, before):
    other = donor(exact=[2], others=[3])
    assert replaced_prompt("answer_only", OWN, None, bos).ids == before
    assert replaced_prompt("answer_after_other", OWN, other, bos).ids == other.ids
    assert replaced_prompt("patch_right", OWN, other, bos) == patch_question(OWN, other)
    for intervention in ("patch_question", "patch_random", "patch_right", "answer_after_other"):
        found = replaced_prompt(intervention, OWN, None, bos)
        assert (found.ids, found.count) == (OWN.ids, 0)


DONORS = {
    "q0": {"donor_wrong": "q1", "donor_right": "q2", "other": "q4"},
    "q1": {"donor_wrong": "q3", "donor_right": "q0", "other": "q2"},
    "q2": {"donor_wrong": "q1", "donor_right": None, "other": "q0"},
    "q3": {"donor_wrong": None, "donor_right": "q4", "other": None},
    "q4": {"donor_wrong": "q3", "donor_right": "q2", "other": "q0"},
}


def answered(tokenizer) -> pa.Table:
    return pa.Table.from_pylist([row | DONORS[row["id"]] for row in examples(tokenizer).to_pylist()])


def slow_prompt(row: dict, rows: dict[str, dict], intervention: str, tokenizer) -> list[int]:
    """The tokens before the answer, put together from encoded questions; the control is not among them."""

    def encoded(one: dict):
        (item,) = encode(tokenizer, prompts()["first"], [one["question"]])
        spans = [(span["start"] + item.question.start, span["end"] + item.question.start) for span in one["spans"]]
        return item.ids, [
            index
            for index, (start, end) in enumerate(item.offsets)
            if any(start < last and first < end for first, last in spans)
        ]

    name = {"patch_question": "donor_wrong", "patch_right": "donor_right", "answer_after_other": "other"}
    ids, exact = encoded(row)
    given = rows.get(row[name[intervention]])
    if given is None:
        return ids
    other, theirs = encoded(given)
    if intervention == "answer_after_other":
        return other
    while exact and theirs:
        ids[exact.pop()] = other[theirs.pop()]
    return ids


QUICK = [("llama", "plain"), ("gemma3", "packed")]


@pytest.fixture
def forced(request, monkeypatch):
    if request.param == "plain":
        monkeypatch.setattr(self_check._Trial, "packed_fault", lambda trial: "a test wants it so")
    return request.param


@pytest.mark.parametrize(
    ("family", "forced"),
    [
        pytest.param(family, path, marks=[] if (family, path) in QUICK else pytest.mark.slow)
        for family in FAMILIES
        for path in ("packed", "plain")
    ],
    indirect=["forced"],
)
@pytest.mark.parametrize("experiment", REPLACING)
def test_stored_activations_equal_a_plain_pass_over_the_replaced_tokens(
    family, forced, experiment, tokenizer, tmp_path
):
    fast, slow = tiny_model(family, len(tokenizer)), tiny_model(family, len(tokenizer), attention="eager")
    table = answered(tokenizer)
    rows = {row["id"]: row for row in table.to_pylist()}
    analysed = table.take([4, 0, 3, 1])  # a donor need not be analysed
    shape = {"layers": 4, "width": 32, "dtype": torch.float32, "made_from": {}}
    with ActivationWriter(tmp_path, **shape) as writer:
        run_workload(Engine(fast, 4096), build_workload(tokenizer, prompts(), analysed), writer)
    workload = build_replaced(
        tokenizer, prompts()["first"], analysed, asked=table, experiment=experiment, positions=POSITIONS
    )
    with ActivationWriter(tmp_path, **shape, knockout=experiment) as writer:
        run_workload(Engine(fast, 256), workload, writer)
    reader = ActivationReader([tmp_path], knockouts=["exact_question", experiment])
    stored, plain = defaultdict(list), defaultdict(list)
    for index, key in enumerate(reader.keys):
        row = rows[key["id"]]
        sequences = workload.sequences[analysed["id"].to_pylist().index(key["id"])]
        for run, sequence in zip(REPLACING[experiment], sequences, strict=True):
            if run[1] == "answer_only":
                before = [tokenizer.bos_token_id]
            elif run[1] == "patch_random":
                before = sequence.ids[: sequence.read[2] - row["exact_first"] + 1].tolist()
            else:
                before = slow_prompt(row, rows, run[1], tokenizer)
            ids = before + row["generated_ids"]
            places = [row["exact_last"], row["answer_final"], row["exact_first"] - 1]
            keep = [len(before) + place for place in places]
            for layer in (0, 3):
                expected = plain_states(slow, ids, cut=[], keep=keep, layer=layer)
                for component in COMPONENTS:
                    for place, position in enumerate(POSITIONS):
                        read = reader.read(component, position, *run, layers=range(layer, layer + 1))
                        stored[component].append(read[0, index])
                        plain[component].append(expected[component][place])
    for component in COMPONENTS:
        found, expected = torch.stack(stored[component]), torch.stack(plain[component])
        assert_same(found, expected, of_a_pass(slow, longest(workload), expected))


def test_every_file_says_whose_tokens_stand_where(tokenizer, tmp_path):
    table = answered(tokenizer)
    built = {
        name: build_replaced(tokenizer, prompts()["first"], table, asked=table, experiment=name, positions=["final"])
        for name in REPLACING
    }
    keys = {key["id"]: key for key in built["patching"].keys}
    for row in table.to_pylist():
        found = keys[row["id"]]
        assert found["patch_question/donor"] == found["patch_random/donor"] == row["donor_wrong"]
        assert found["patch_right/donor"] == row["donor_right"]
    assert keys["q0"]["patch_question/donor_popularity"] == 1
    assert (keys["q3"]["patch_question/donor_popularity"], keys["q3"]["patch_question/replaced"]) == (None, 0)
    words = {
        name: len(tokens)
        for name, tokens in (
            (row["id"], encode(tokenizer, prompts()["first"], [row["question"]])[0].question_tokens)
            for row in table.to_pylist()
        )
    }
    for key in built["answer_only"].keys:
        assert key["answer_after_other/replaced"] == (words[key["id"]] if DONORS[key["id"]]["other"] else 0)
        assert key["answer_only/replaced"] > words[key["id"]]
        assert key["answer_only/donor"] is None


def test_without_a_token_before_the_answer_nothing_counts_as_done(tokenizer):
    table = answered(tokenizer)
    first = table.set_column(table.column_names.index("exact_first"), "exact_first", pa.array([0, 1, 0, 1, 1]))
    nameless = copy.deepcopy(tokenizer)
    nameless.bos_token = None
    built = build_replaced(
        nameless, prompts()["first"], first, asked=first, experiment="answer_only", positions=["before_answer"]
    )
    assert [key["answer_only/replaced"] > 0 for key in built.keys] == [False, True, False, True, True]
    assert all(len(some[1].ids) > 0 and some[1].read == [0] for some in built.sequences)


def test_a_tree_computes_replaced_tokens_and_what_follows_them_once(tokenizer):
    own = Variant(np.array([7, 8, 9, 10, 11, 12]), read=[5])
    other = Variant(np.array([7, 8, 9, 50, 11, 12]), read=[5])
    tree = grow_tree([own, other, own], known=np.arange(1))
    assert [branch.tokens.tolist() for branch in tree.branches] == [[8, 9, 10, 11, 12], [], [50, 11, 12], []]
    assert [branch.fork for branch in tree.branches[1:]] == [6, 3, 6]
