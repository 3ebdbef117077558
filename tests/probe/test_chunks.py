"""How many layers, or components and positions, are probed together changes nothing that is measured."""

import pytest
import torch

from anchorscope.extract.axes import EXACT, Grid, passes_of
from anchorscope.extract.store import ActivationReader, ActivationWriter
from anchorscope.probe import delta
from anchorscope.probe.examples import examples_of
from anchorscope.probe.label_errors import labellings
from measured import check_measured

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
    examples, passes = examples_of(reader.keys, folds=4, repeats=2, seed=0, where="here"), passes_of(EXACT)
    errors = {("mlp", "answer_last"): labellings(examples, seed=0)}

    def measured(at_once: int) -> dict[delta.Place, delta.Measured]:
        monkeypatch.setattr(delta, "CHUNK_BYTES", at_once * EXAMPLES * WIDTH * 4)
        monkeypatch.setattr(delta, "READ_BYTES", (at_once - 1) * EXAMPLES * WIDTH * 4 * len(passes))
        return delta.measure_places(reader, examples, passes, on_gpu=False, errors=errors)

    found, expected = measured(layers_at_once), measured(1)
    assert list(found) == list(expected) == GRID.places()
    for place in GRID.places():
        states = reader.read_passes(*place, passes=passes, layers=range(LAYERS))
        assert bool(found[place].mislabelled) == bool(expected[place].mislabelled) == (place in errors)
        check_measured(found[place], expected[place], states, examples, errors.get(place, []))
