"""The plain path gives what the packed path gives, from the activations to the tables."""

import numpy as np
import polars as pl
import pytest
import torch

from anchorscope.engine import self_check
from anchorscope.engine.door import Engine
from anchorscope.engine.work import Variant
from anchorscope.extract.axes import EXACT, HEADLINE, PASSES, passes_of, windowed
from anchorscope.extract.job import run_workload
from anchorscope.extract.sequences import Workload
from anchorscope.extract.store import ActivationReader, ActivationWriter
from anchorscope.probe.delta import measure
from engines import greedy
from rounding import assert_same, of_a_pass, of_sureness
from small_things import tiny_model

PREFIX, EXAMPLES = 12, 48


@pytest.fixture
def forced(monkeypatch):
    """Every model counts as one that cannot be packed."""

    def force() -> None:
        monkeypatch.setattr(self_check._Trial, "packed_fault", lambda trial: "a test wants it so")

    return force


def workload(knockout: str = EXACT) -> Workload:
    """Examples whose right ones have one token more often than the others, so that a probe has something to find."""
    draw = np.random.default_rng(0)
    start = draw.integers(5, 500, PREFIX)
    keys, sequences = [], []
    for index in range(EXAMPLES):
        right = index % 2 == 0
        ids = np.concatenate([start, draw.integers(5, 500, 8 + index % 5)])
        ids[PREFIX + 2] = 7 if right == (draw.random() < 0.8) else 8
        cuts = [[], [PREFIX + 2, PREFIX + 3], [PREFIX + 1], [], [PREFIX + 2, PREFIX + 3]]
        sequences.append([Variant(ids, read=[len(ids) - 1], cut=cut) for cut in cuts])
        keys.append({"id": f"q{index:02d}", "right": right, "subject": None, "popularity": None, "cut": 2})
    if knockout != EXACT:
        return Workload(keys, [[some[1]] for some in sequences], passes_of(knockout))
    return Workload(keys, sequences, PASSES)


def tables(model, folder) -> tuple[ActivationReader, list[pl.DataFrame]]:
    """The main passes, and a window of two layers."""
    shape = {"layers": 4, "width": 32, "dtype": torch.float32, "made_from": {}, "grid": HEADLINE}
    for knockout in (EXACT, windowed(2)):
        with ActivationWriter(folder, **shape, knockout=knockout) as writer:
            run_workload(Engine(model, 512), workload(knockout), writer)
    reader = ActivationReader([folder])
    return reader, list(measure(reader, folds=3, repeats=1, seed=0, where="here")[:3])


def test_tables_of_both_paths_are_the_same_to_the_printed_digit(tmp_path, forced):
    model = tiny_model("llama", 500)
    packed, expected = tables(model, tmp_path / "packed")
    forced()
    assert Engine(model).prepare(workload().work(HEADLINE, 4, EXACT)).name == "plain"
    plain, found = tables(model, tmp_path / "plain")
    for run in [*PASSES, *passes_of(windowed(2))]:
        read = [reader.read("resid", "answer_last", *run, layers=range(4)) for reader in (plain, packed)]
        assert_same(*read, of_a_pass(model, PREFIX + 12, read[0]))  # the longest sequence
    assert expected[0]["delta_p"].abs().max() > 5, "nothing happened that could differ"
    for some, other in zip(found, expected, strict=True):
        some, other = (table.drop("inner_losses", strict=False) for table in (some, other))
        numbers = [name for name, kind in some.schema.items() if kind.is_float()]
        assert some.drop(numbers).equals(other.drop(numbers))
        for name in numbers:
            assert (some[name] - other[name]).abs().max() < 0.05, name


def test_both_paths_say_the_same(forced):
    model = tiny_model("qwen3", 500)
    prompts = [item[0].ids.tolist() for item in workload().sequences[:9]]
    stops = torch.zeros(500, dtype=torch.bool)
    stops[::6] = True
    expected = greedy(model, prompts, stops, 9, batch_tokens=64)
    assert len({len(answer.ids) for answer in expected}) > 1
    forced()
    found = greedy(model, prompts, stops, 9, batch_tokens=64)
    assert [answer.ids for answer in found] == [answer.ids for answer in expected]
    rounding = of_sureness(model, PREFIX + 12 + 9)  # the longest prompt, and what is said
    for some, other in zip(found, expected, strict=True):
        assert_same([some.logprobs, some.entropies], [other.logprobs, other.entropies], rounding)
    assert model.generation_config.pad_token_id == 2, "the model's own settings are back"
