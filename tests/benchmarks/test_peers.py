"""What Anchorscope is compared with does the same work, and a prefix that is computed once changes nothing."""

from types import ModuleType

import numpy as np
import pytest
import torch

from anchorscope.engine.batches import plan_batches
from anchorscope.engine.work import Variant
from anchorscope.extract.sequences import Workload
from rounding import assert_same, of_a_pass
from small_things import ROOT, tiny_model

PREFIX, VOCABULARY = 6, 64


@pytest.fixture
def extract(monkeypatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    monkeypatch.syspath_prepend(ROOT / "benchmarks" / "peers")
    import extract

    return extract


def workload(count: int) -> Workload:
    """Examples of several lengths, clean and with two tokens cut."""
    draw = np.random.default_rng(0)
    start = draw.integers(3, VOCABULARY, PREFIX)
    passes = [("first", "clean"), ("first", "exact_question")]
    sequences = []
    for index in range(count):
        ids = np.concatenate([start, [3 + index], draw.integers(3, VOCABULARY, 8 + index)])
        read = [len(ids) - 2, len(ids) - 1, len(ids) - 3]
        sequences.append([Variant(ids, read, cut) for cut in ([], [PREFIX + 1, PREFIX + 3])])
    keys = [{"id": str(index), "right": True, "subject": None, "popularity": None} for index in range(count)]
    return Workload(keys, sequences, passes)


@pytest.mark.parametrize("start", [0, PREFIX], ids=["whole sequences", "the prefix once"])
def test_the_states_of_padded_batches_are_those_of_the_engine(extract, start):
    model, examples = tiny_model("llama", VOCABULARY), workload(5)
    sequences = [sequence for item in examples.sequences for sequence in item]
    assert extract.beginning(sequences) == PREFIX
    library = extract.LIBRARIES["transformers"](model, None)
    found = extract.run_library(library, sequences, start=start, rows=3, device=model.device)
    ours = extract.run_ours(model, examples)
    assert found.shape == (4, 10, 3, 32)
    rounding = of_a_pass(model, tokens=max(len(sequence.ids) for sequence in sequences), states=ours)
    assert_same(found, ours, rounding)
    assert (ours[:, ::2] - ours[:, 1::2]).abs().amax() > 100 * rounding, "the cut changes much"


def test_answers_do_not_depend_on_a_prefix_that_is_computed_once(extract):
    from bench_generate import run_plain

    model = tiny_model("llama", VOCABULARY)
    prompts = [item[0].ids.tolist() for item in workload(5).sequences]
    stops = torch.arange(VOCABULARY) < 12
    plan = plan_batches([len(prompt) for prompt in prompts], 30)
    whole = run_plain(model, prompts, plan=plan, stops=stops)
    assert run_plain(model, prompts, plan=plan, stops=stops, shared=PREFIX) == whole
    assert len({tuple(answer) for answer in whole}) > 1
