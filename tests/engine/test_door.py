"""What the engine hands over is what one plain pass over each sequence gives, in the caller's order."""

import numpy as np
import pytest
import torch

from anchorscope.engine.door import Engine
from anchorscope.engine.self_check import choose_path
from anchorscope.engine.work import Bias, Variant, Work
from engines import collected, engine_on
from rounding import assert_same, of_a_pass
from small_things import tiny_model

LAYERS, SHARED = 3, 4


def drawn(lengths: tuple[int, ...]) -> list[np.ndarray]:
    """Sequences that begin alike."""
    draw = np.random.default_rng(0)
    prefix = draw.integers(5, 200, SHARED)
    return [np.concatenate([prefix, draw.integers(5, 200, length)]) for length in lengths]


@pytest.mark.parametrize("family", ["llama", "gemma3"])
@pytest.mark.parametrize("way", ["packed", "plain"])
def test_the_ends_of_sequences_are_those_of_one_pass_each(family, way):
    model, sequences, counts = tiny_model(family, 200, layers=LAYERS), drawn((9, 2, 14)), [3, 1, 5]
    path = choose_path(model, sequences[-1].tolist(), SHARED)
    assert path.name == "packed"
    items = [
        [[Variant(ids, read=[*range(len(ids) - count, len(ids))])]]
        for ids, count in zip(sequences, counts, strict=True)
    ]
    for layer in (0, LAYERS - 1):
        states: dict[int, torch.Tensor] = {}

        def take(batch, blocks, states=states):
            parts = blocks[0][0, 0].split([counts[index] for index in batch])
            states |= dict(zip(batch, parts, strict=True))

        engine_on(path, model, way).states(Work(items, ["resid"], [layer], by_item=True), take)
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
                model(torch.from_numpy(ids)[None])
        handle.remove()
        expected = torch.cat([states[0, -count:] for states, count in zip(kept, counts, strict=True)])
        found = torch.cat([states[index] for index in range(len(items))])
        assert_same(found, expected, of_a_pass(model, max(map(len, sequences)), expected))


def test_a_model_is_tried_once_and_again_only_where_that_could_change_the_path(monkeypatch):
    from anchorscope.engine import door

    tried: list[int] = []

    def counting(model, ids, shared):
        tried.append(len(ids))
        return choose_path(model, ids, shared)

    monkeypatch.setattr(door, "choose_path", counting)
    model = tiny_model("mistral", 200, layers=2)
    model.config.sliding_window = 20
    engine = Engine(model)
    for length in (6, 10, 8, 17, 30, 12, 29):  # with four more each that all begin with
        engine.prepare(Work([[[Variant(ids, read=[len(ids) - 1])]] for ids in drawn((length,))], ["resid"], [1]))
    assert tried == [10, 21, 34], "the first, the first beyond the window, and the first beyond that"
    model.bfloat16()
    engine.prepare(Work([[[Variant(ids, read=[3])]] for ids in drawn((4,))], ["resid"], [1]))
    assert tried[3:] == [8], "the model computes otherwise"


def test_a_trunk_is_computed_no_further_than_a_variant_needs_it():
    model = tiny_model("llama", 200, layers=2)
    (ids,) = drawn((12,))
    sizes: list[int] = []
    model.get_decoder().register_forward_pre_hook(
        lambda module, args, kwargs: sizes.append(kwargs["pack"].size) if "pack" in kwargs else None, with_kwargs=True
    )
    engine = engine_on(choose_path(model, ids.tolist(), SHARED), model, "packed")
    sizes.clear()
    bias = Bias(start=10, of_keys=np.ones(len(ids), np.float32))
    collected(engine, Work([[[Variant(ids, read=[15], bias=bias), Variant(ids, read=[15], cut=[9])]]], ["resid"], [1]))
    # All before what is read is one opening; from there a branch of six biased tokens, and one of six uncut ones.
    assert sizes == [15, 6 + 6]
