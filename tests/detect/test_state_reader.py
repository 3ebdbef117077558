"""States that are read at the ends of sequences are those of one plain pass over each of them."""

import pytest
import torch

from anchorscope.detect.state_reader import StateReader
from anchorscope.engine.self_check import choose_path
from rounding import assert_same, of_a_pass
from small_things import tiny_model

LAYERS, SHARED = 3, 4


@pytest.mark.parametrize("family", ["llama", "gemma3"])
@pytest.mark.parametrize("packed", [True, False])
def test_the_ends_of_sequences_are_those_of_one_pass_each(family, packed):
    model = tiny_model(family, 200, layers=LAYERS)
    draw = torch.Generator().manual_seed(0)
    prefix = torch.randint(5, 200, (SHARED,), generator=draw).tolist()
    sequences = [prefix + torch.randint(5, 200, (length,), generator=draw).tolist() for length in (9, 2, 14)]
    counts = [3, 1, 5]
    path = choose_path(model, sequences[-1], SHARED)
    assert path.name == "packed"
    way = path if packed else path.plain()
    for layer in (0, LAYERS - 1):
        with torch.inference_mode(), way.running(model):
            reader = StateReader(model, way, "resid", layer, begin=[prefix], shared=SHARED)
            found = reader.read_ends(sequences, counts)
        kept = []
        handle = (
            model.get_decoder()
            .layers[layer]
            .register_forward_hook(
                lambda module, args, out, kept=kept: kept.append(out[0] if isinstance(out, tuple) else out)
            )
        )
        with torch.inference_mode():
            for ids in sequences:
                model(torch.tensor([ids]))
        handle.remove()
        expected = torch.cat([states[0, -count:] for states, count in zip(kept, counts, strict=True)])
        assert_same(found, expected, of_a_pass(model, max(map(len, sequences)), expected))
