"""Engines whose way to run a model is chosen, and calls of theirs that tests make often."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from transformers import PreTrainedModel

from anchorscope.engine.door import Engine, Tried
from anchorscope.engine.self_check import EnginePath, choose_path
from anchorscope.engine.work import Prompts, Said, Work


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
