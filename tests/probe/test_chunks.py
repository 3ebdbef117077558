"""How many layers, or components and positions, are probed together changes nothing that is measured."""

import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal

from anchorscope.extract.axes import EXACT, Grid, Headline, passes_of
from anchorscope.extract.store import ActivationReader, ActivationWriter
from anchorscope.probe import delta

EXAMPLES, LAYERS, WIDTH = 100, 3, 8
GRID = Grid(("resid", "mlp"), ("answer_last", "final"))


@pytest.fixture
def reader(tmp_path) -> ActivationReader:
    """Each component, layer and position tells right from wrong to another degree."""
    right = torch.arange(EXAMPLES) % 2 == 0
    shape = (len(GRID.components), LAYERS, len(passes_of(EXACT)), len(GRID.positions), EXAMPLES, WIDTH)
    vectors = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    degree = torch.linspace(0.2, 3, len(GRID) * LAYERS).reshape(shape[0], LAYERS, 1, shape[3], 1)
    vectors[..., 0] += degree * right
    keys = [
        {"id": f"{number:03d}", "right": bool(right[number]), "subject": None, "popularity": None, "cut": 2}
        for number in range(EXAMPLES)
    ]
    size = {"layers": LAYERS, "width": WIDTH, "dtype": torch.float32}
    with ActivationWriter(tmp_path, **size, made_from={}, grid=GRID, knockout=EXACT) as writer:
        writer.add(keys, vectors)
    return ActivationReader([tmp_path], GRID)


@pytest.mark.parametrize(
    "layers_at_once",
    [2, *(pytest.param(some, marks=pytest.mark.slow) for some in (LAYERS, 2 * LAYERS, 3 * LAYERS, 100))],
)
def test_all_that_is_probed_at_once_is_what_one_layer_at_a_time_gives(reader, layers_at_once, monkeypatch):
    def measured(at_once: int) -> list[pl.DataFrame]:
        monkeypatch.setattr(delta, "CHUNK_BYTES", at_once * EXAMPLES * WIDTH * 4)
        headline = Headline("mlp", "answer_last")
        found = delta.measure(reader, folds=4, repeats=2, seed=0, where="here", headline=headline)
        assert len(found.probes) == len(GRID.places())
        return [*found[:-1], *found.probes]

    for found, expected in zip(measured(layers_at_once), measured(1), strict=True):
        assert_frame_equal(found, expected, rel_tol=1e-3, abs_tol=1e-3)
