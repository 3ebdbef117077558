"""What could not be probed is found out once, and every file made from it says why."""

import polars as pl
import pytest
import torch

from anchorscope.files.frames import read_frame
from anchorscope.files.sealed_parquet import made_from
from anchorscope.probe.examples import TooFew, not_probed, too_few
from anchorscope.probe.logistic import FittedProbes
from anchorscope.probe.scores import each, join_layers
from anchorscope.probe.strengths import Fitted
from anchorscope.probe.written import write_derived, write_probed

MADE = {"stage": "probe", "model": {"name": "m"}, "path": None, "repeats": 2, "code": "abc"}
TABLE = pl.DataFrame({"id": ["a", "b"]})


@pytest.fixture
def files(tmp_path):
    """Of a dataset that was probed, and of one that was not."""
    write_probed([tmp_path / "one.parquet"], [TABLE], MADE)
    write_probed([tmp_path / "two.parquet"], TooFew("7 right are too few."), MADE)
    return {("m", name): tmp_path / f"{name}.parquet" for name in ("one", "two")}


def test_a_file_says_whether_it_was_probed_and_why_not(files):
    one, two = files.values()
    assert too_few(one) is None
    assert read_frame(one).equals(TABLE)
    assert too_few(two) == TooFew("7 right are too few.")
    assert read_frame(two).is_empty()
    assert not_probed(files) == {("m", "two"): "7 right are too few."}
    with pytest.raises(ValueError, match=r"Nothing could be probed\. 7 right are too few\."):
        not_probed({("m", "two"): two})


def test_what_is_made_from_it_inherits_that_and_is_not_computed(files, tmp_path):
    one, two = files.values()
    targets = [tmp_path / "first.parquet", tmp_path / "second.parquet"]
    write_derived(targets, one, lambda: [TABLE, TABLE.head(1)], {"stage": "later", "code": "def"})
    assert [len(read_frame(target)) for target in targets] == [2, 1]
    made = made_from(targets[1])
    assert (made["stage"], made["code"], made["model"], made["repeats"]) == ("later", "def", {"name": "m"}, 2)
    write_derived(targets, two, lambda: pytest.fail("nothing is there to compute from"), {"stage": "later"})
    for target in targets:
        assert too_few(target) == TooFew("7 right are too few.")
        assert made_from(target)["model"] == {"name": "m"}


def fitted(layers: int) -> Fitted:
    draw = torch.Generator().manual_seed(layers)
    probes = FittedProbes(
        torch.randn(layers, 2, 3, generator=draw),
        torch.randn(layers, 2, generator=draw),
        torch.ones(layers, 2, dtype=torch.bool),
    )
    return Fitted(probes, torch.rand(layers, 2, generator=draw), torch.rand(layers, 2, generator=draw))


def test_layers_that_are_joined_can_be_cut_apart_again():
    parts = [{"a": [fitted(layers)]} for layers in (1, 3)]
    whole = join_layers(parts)
    assert whole["a"][0].probes.weight.shape == (4, 2, 3)
    for part, some in zip(parts, (slice(0, 1), slice(1, 4)), strict=True):
        (again,), (own,) = each(whole, lambda tensor, some=some: tensor[some])["a"], part["a"]
        assert torch.equal(again.probes.weight, own.probes.weight)
        assert torch.equal(again.probes.converged, own.probes.converged)
        assert torch.equal(again.losses, own.losses)
    with pytest.raises(TypeError, match="str keeps no tensors"):
        each({"a": "text"}, torch.Tensor.cpu)
