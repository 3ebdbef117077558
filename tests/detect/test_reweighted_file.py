"""Reweighted states from files to files: whole, in the order of ids, refused in one sentence where they cannot be."""

import numpy as np
import pyarrow as pa
import pytest
import torch

from anchorscope.answer.donors import DONORS
from anchorscope.answer.prompts import PromptSet
from anchorscope.detect.again import AgainSettings, gates_of, marked_examples, reweighted_states, run_again, workload_of
from anchorscope.detect.reweighting import AMOUNTS, GATES, SHIFTS, STATE_COLUMNS, read_reweighted, write_reweighted
from anchorscope.engine.door import Engine
from anchorscope.extract.axes import Headline
from anchorscope.files.sealed_parquet import made_from, provenance, read_table, write_table
from anchorscope.models.fetch import fetch_model
from described import columns
from few_examples import SHOTS, examples, longest, prompts
from rounding import assert_same, of_a_pass
from small_run import save_model
from small_things import tiny_model

HEADLINE = Headline("resid", "answer_last")
SETTINGS = AgainSettings(
    headline=HEADLINE,
    prompts=PromptSet("few_shot", {"first": SHOTS["first"]}),
    about=PromptSet(
        "few_shot", {"about_header": "Judge.", "about_shots": [], "about_true": "True:", "about_sure": "Sure:"}
    ),
    dtype="float32",
    threads=1,
    batch_tokens=None,
    code="",
)
SHAPE = (1 + len(SHIFTS), 4, 3)


def write_gates(target, ids: list[str]) -> None:
    draw = np.random.default_rng(0)
    chances = {gate: pa.array(draw.random(len(ids)), pa.float32()) for gate in GATES}
    write_table(target, pa.table({"id": ids, **chances}), provenance())


@pytest.fixture(scope="module")
def files(tokenizer, tmp_path_factory) -> dict:
    """A small model, its answers to the few questions, and gates for them and others."""
    folder = tmp_path_factory.mktemp("files")
    save_model(folder / "model", tokenizer, seed=0)
    fetch_model("tiny", {"path": str(folder / "model")}, folder / "linked", folder / "tiny.json")
    chosen = examples(tokenizer).append_column("answer", pa.array(["Paris in France"] * 5))
    for name in DONORS.names:
        chosen = chosen.append_column(name, pa.nulls(5, pa.string()))
    write_table(folder / "chosen.parquet", chosen, {})
    write_gates(folder / "gates.parquet", ["q4", "q1", "q0", "q3", "q2", "of another shard"])
    return {name: folder / f"{name}.parquet" for name in ("chosen", "gates")} | {"manifest": folder / "tiny.json"}


def test_a_job_writes_the_states_of_its_examples_and_what_they_are(files, tokenizer, tmp_path):
    target = tmp_path / "reweighted.parquet"
    run_again(**files, asked=tmp_path / "asked.parquet", reweighted=target, settings=SETTINGS)
    said = made_from(target)
    assert [said[name] for name in ("stage", "dtype", "width", "layer")] == ["run_again", "float32", 32, 1]
    found = read_reweighted([target])
    assert found.ids == ["q0", "q1", "q2", "q3", "q4"]
    rows = examples(tokenizer)
    workload = workload_of(tokenizer, prompts()["first"], rows, "answer_last")
    model = tiny_model("llama", len(tokenizer), layers=2)
    gates = read_table(files["gates"]).to_pylist()
    chances = np.array([[row[gate] for gate in GATES] for name in found.ids for row in gates if row["id"] == name])
    expected = reweighted_states(Engine(model), HEADLINE, marked_examples(workload, rows, "answer_last"), chances)
    rounding = of_a_pass(model, longest(workload), expected)  # the job's model lies in memory otherwise
    assert_same(found.question_last, expected[0], rounding)
    assert list(found.states) == [(gate, amount) for gate in GATES for amount in AMOUNTS if amount]
    for states, other in zip(found.states.values(), expected[1:], strict=True):
        assert_same(states, other, rounding)


def test_where_nothing_was_probed_an_empty_file_says_so(files, tmp_path):
    empty = pa.schema([("id", pa.string()), *((gate, pa.float32()) for gate in GATES)]).empty_table()
    gates, target = tmp_path / "gates.parquet", tmp_path / "reweighted.parquet"
    write_table(gates, empty, provenance(not_probed="too few"))
    asked = tmp_path / "asked.parquet"
    run_again(**(files | {"gates": gates}), asked=asked, reweighted=target, settings=SETTINGS)
    assert read_table(asked)["id"].to_pylist() == ["q0", "q1", "q2", "q3", "q4"]
    assert made_from(target)["not_probed"] == "too few"
    found = read_reweighted([target])
    assert found.ids == []
    assert {tuple(states.shape) for states in found.states.values()} == {(0, 32)}


def test_an_example_without_gates_is_one_sentence(tmp_path):
    write_gates(tmp_path / "gates.parquet", ["q0", "q2"])
    with pytest.raises(ValueError, match=r"gates\.parquet has no gates for example q1; delete it, and run again\.$"):
        gates_of(tmp_path / "gates.parquet", ["q0", "q1"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_shards_are_read_in_the_order_of_ids_as_they_were_written(dtype, tmp_path):
    states = torch.randn(SHAPE, generator=torch.Generator().manual_seed(0)).to(dtype)
    nothing = torch.empty(SHAPE[0], 0, SHAPE[2])
    for name, ids, part in (("a", ["d", "a"], states[:, :2]), ("b", ["c", "b"], states[:, 2:]), ("c", [], nothing)):
        write_reweighted(tmp_path / name, ids, part, {"layer": 7})
    assert made_from(tmp_path / "a")["dtype"] == str(dtype).removeprefix("torch.")
    assert made_from(tmp_path / "a")["layer"] == 7
    found = read_reweighted([tmp_path / name for name in "abc"])
    assert found.ids == ["a", "b", "c", "d"]
    ordered = states.float()[:, [1, 3, 2, 0]]
    assert torch.equal(found.question_last, ordered[0])
    assert torch.equal(torch.stack([*found.states.values()]), ordered[1:])


def test_a_state_that_is_not_finite_is_named(tmp_path):
    states = torch.zeros(SHAPE)
    states[1 + SHIFTS.index(("honest", 0.5)), 2, 1] = torch.inf
    with pytest.raises(ValueError, match=r"^The state honest/0\.5 of example c is not finite; set the model's dtype"):
        write_reweighted(tmp_path / "a", list("abcd"), states, {})
    assert not (tmp_path / "a").exists()


def test_the_columns_are_described():
    assert columns("reweighted/{model}/{dataset}/{shard}.parquet") == ["id", *STATE_COLUMNS]
