"""Engines whose way to run a model is chosen, and calls of theirs that tests make often."""

import sys
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from transformers import PreTrainedModel

from anchorscope.engine.door import Engine, Tried
from anchorscope.engine.fused import fused
from anchorscope.engine.self_check import EnginePath, choose_path
from anchorscope.engine.work import Prompts, Said, Work
from rounding import assert_same, of_a_pass


def engine_on(
    path: EnginePath, model: PreTrainedModel, way: str | None = None, batch_tokens: int | None = None
) -> Engine:
    """An engine that takes a path, or the named one of the same model, and tries nothing."""
    about = (model.dtype, model.device, model.config._attn_implementation)
    return Engine(model, batch_tokens, Tried(replace(path, name=way or path.name), longest=10**9, about=about))


def tried_engine(model: PreTrainedModel, ids: Sequence[int], shared: int, way: str | None = None) -> Engine:
    """An engine that was tried on one sequence."""
    return engine_on(choose_path(model, list(ids), shared), model, way)


def continuations(
    model: PreTrainedModel,
    prompts: list[list[int]],
    stops: Tensor,
    max_new_tokens: int,
    uniforms: Tensor | None = None,
    batch_tokens: int | None = None,
) -> list[list[Said]]:
    return Engine(model, batch_tokens).continued(Prompts(prompts, stops, max_new_tokens, uniforms), what="a test")


def greedy(
    model: PreTrainedModel, prompts: list[list[int]], stops: Tensor, max_new_tokens: int, **how: int
) -> list[Said]:
    return [said for (said,) in continuations(model, prompts, stops, max_new_tokens, **how)]


def collected(engine: Engine, work: Work) -> Tensor:
    """The states of items that are one batch, [components, layers, vectors, width], in the caller's order of items."""
    batches: list[tuple[list[int], Tensor]] = []
    engine.states(
        work, lambda batch, blocks: batches.append((batch, torch.cat([block.cpu() for block in blocks], dim=1)))
    )
    ((batch, states),) = batches
    order = torch.tensor(batch).argsort()
    return states.unflatten(2, (-1, len(batch)))[:, :, :, order].flatten(2, 3)


def check_fused(model: PreTrainedModel, gated: bool) -> None:
    """A model's fused parts give the same. Its norms and MLPs are fused only if it is of a `gated` family."""
    for name, weight in model.named_parameters():
        if "norm" in name:
            weight.copy_(torch.randn_like(weight))
    ids = torch.arange(30, device=model.device)[None]
    plain = model(ids).logits
    first, code = model.get_decoder().layers[0], sys.modules[type(model).__module__]
    rotary = code.apply_rotary_pos_emb
    with fused(model):
        assert ("forward" in vars(first.mlp)) is ("forward" in vars(first.input_layernorm)) is gated
        assert code.apply_rotary_pos_emb is not rotary
        assert_same(model(ids).logits.cpu(), plain.cpu(), of_a_pass(model, ids.numel(), plain))
    assert not {"forward"} & {*vars(first.mlp), *vars(first.input_layernorm)}
    assert code.apply_rotary_pos_emb is rotary
