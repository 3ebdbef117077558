"""How much of a loss flows through each attention weight: |weight x gradient|, summed over heads, queries and keys.

The only part of the engine that keeps gradients. A loss at one token depends on the attention weights of a query only
through tokens from that query on. So gradients are kept for the queries' tokens alone: keys and values of all tokens
before them are computed first, without gradients, and what all rows begin with is computed once.
"""

import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel

from anchorscope.engine.attention_mask import AttentionScores
from anchorscope.engine.batches import out_of_memory
from anchorscope.engine.packing import to_device
from anchorscope.engine.parts import MODULES, Parts, decoder_of, hooked, input_device, layers_listed
from anchorscope.engine.self_check import allowed, relative_difference
from anchorscope.engine.work import Probes, Route, Verdicts, shared_tokens
from anchorscope.files.logs import log

WEIGHED = (torch.softmax, Tensor.softmax, F.softmax)  # what returns weights


class Gradients:
    """A model that is ready to differentiate probes' losses at some layers."""

    def __init__(self, model: PreTrainedModel, parts: Parts, modules: dict[int, nn.Module], prefix: np.ndarray | None):
        """`modules` are read, by layer. With `prefix`, what all rows begin with, keys and values are reused."""
        self.model, self.parts, self.modules = model, parts, modules
        self.shared = 0 if prefix is None else len(prefix)
        self.prefix = None if prefix is None else DynamicCache()
        if prefix is not None and len(prefix):
            whole = Batch.of([Route(prefix, 0, [])], shared=len(prefix), reuse=False)
            self._advance(self.prefix, whole, slice(None))

    def run(self, routes: list[Route], probes: Probes) -> tuple[Tensor, Tensor]:
        """Flows [layers, flows, rows], each a mean over the layers up to that one, and states [layers, rows, width]."""
        batch = Batch.of(routes, self.shared, reuse=self.prefix is not None)
        past = None if self.prefix is None else self._past(self.prefix, batch)
        last = torch.tensor([columns[-1] - batch.before for columns in batch.columns])
        with torch.enable_grad():
            states, weights = self._forward(batch, past, last)
            queries, keys = _masks(routes, batch)
            values = []
            for number, (layer, read) in enumerate(states.items()):
                loss = probes.loss(number, read.float())
                below = {one: some for one, some in weights.items() if one <= layer}
                values.append(_flow(loss, below, queries, keys, more=number + 1 < len(states)))
        return torch.stack(values), torch.stack([read.detach().float().cpu() for read in states.values()])

    def _forward(
        self, batch: "Batch", past: DynamicCache | None, last: Tensor
    ) -> tuple[dict[int, Tensor], dict[int, list[Tensor]]]:
        """The state at each row's `last` token by layer that is read, and the weights of every layer.

        The weights of an attention are [rows, heads, queries, keys], and there may be several in a layer.
        """
        states: dict[int, Tensor] = {}
        weights: dict[int, list[Tensor]] = {0: []}
        rows, queries = batch.tokens[:, batch.before :].shape
        blocks = self.parts.blocks

        def enter(layer: int, module: nn.Module, args: Any) -> None:
            weights.setdefault(layer, [])

        def weigh(func: Any, made: Tensor) -> None:
            if func in WEIGHED:
                # The first layer's need to be told; all later states get theirs from these.
                weights[next(reversed(weights))].append(made if made.requires_grad else made.requires_grad_())

        def keep(layer: int, module: nn.Module, args: Any, output: Any) -> None:
            states[layer] = self.parts.states(output)[torch.arange(rows), last]

        before = [block.module.register_forward_pre_hook(partial(enter, layer)) for layer, block in enumerate(blocks)]
        after = [module.register_forward_hook(partial(keep, layer)) for layer, module in self.modules.items()]
        with hooked(before + after), AttentionScores(rows, queries, met=weigh):
            self._advance(past, batch, slice(batch.before, None))
        weights = {layer: some for layer, some in weights.items() if some}
        unmet = [layer for layer, block in enumerate(blocks) if block.attention is not None and layer not in weights]
        if unmet:
            raise ValueError(
                f"{self.model.config.get_text_config().model_type} models show no weights of their attention in "
                f"{layers_listed(unmet)}; take saliency out of `experiments`."
            )
        return dict(sorted(states.items())), weights

    @torch.no_grad()
    def _past(self, prefix: DynamicCache, batch: "Batch") -> DynamicCache:
        """Keys and values of all tokens before the queries, the prefix's among them."""
        past = copy.deepcopy(prefix)
        if self.shared:
            past.batch_repeat_interleave(len(batch.tokens))
        self._advance(past, batch, slice(self.shared, batch.before))
        return past

    def _advance(self, past: DynamicCache | None, batch: "Batch", columns: slice) -> None:
        """Run some columns of a batch after those whose keys and values are there, and add theirs."""
        tokens = batch.tokens[:, columns]
        if not tokens.shape[1]:
            return
        given: dict[str, Any] = {"input_ids": tokens, "position_ids": batch.positions[:, columns]}
        if batch.real[:, : batch.before].all():  # nothing to hide: what fills up a row's end stands after all it needs
            given.pop("position_ids")
        else:
            given["attention_mask"] = batch.real[:, : columns.stop].astype(np.int64)
        device = input_device(self.model)
        given = {name: to_device(array, device) for name, array in given.items()}
        decoder_of(self.model)(**given, past_key_values=past, use_cache=past is not None)


@dataclass(frozen=True)
class Batch:
    """Routes as rows of one length: what all begin with, a gap, the tokens before the queries, the queries, a gap."""

    tokens: np.ndarray  # [rows, columns]
    positions: np.ndarray  # of each token in its own sequence, [rows, columns]
    real: np.ndarray  # bool: which columns before the last gap are tokens of the row, [rows, columns]
    before: int  # columns before the queries, or none where all are run with gradients
    columns: list[np.ndarray]  # of each row, where its tokens stand

    @classmethod
    def of(cls, routes: list[Route], shared: int, reuse: bool) -> "Batch":
        """With `reuse`, the queries of all rows begin in one column."""
        known = [route.start if reuse else 0 for route in routes]
        before, after = max(known), max(len(route.ids) - start for route, start in zip(routes, known, strict=True))
        tokens, positions = np.zeros((2, len(routes), before + after), np.int64)
        real = np.ones(tokens.shape, bool)
        columns = [np.arange(len(route.ids)) for route in routes]
        for row, (route, own, start) in enumerate(zip(routes, columns, known, strict=True)):
            own[shared:] += before - start
            tokens[row, own], positions[row, own] = route.ids, np.arange(len(route.ids))
            positions[row, own[-1] :] = len(route.ids) - 1
            real[row, shared : shared + before - start] = False
        return cls(tokens, positions, real, before=before, columns=columns)


def _masks(routes: list[Route], batch: Batch) -> tuple[Tensor, Tensor]:
    """Which columns are a route's queries, [rows, queries], and which its keys, [flows, rows, keys]; one or zero."""
    rows, columns = batch.tokens.shape
    queries = torch.zeros(rows, columns - batch.before)
    keys = torch.zeros(len(routes[0].keys), rows, columns)
    for row, (route, own) in enumerate(zip(routes, batch.columns, strict=True)):
        queries[row, own[route.start :] - batch.before] = 1
        for flow, places in enumerate(route.keys):
            keys[flow, row, own[places]] = 1
    return queries, keys


def _flow(loss: Tensor, weights: dict[int, list[Tensor]], queries: Tensor, keys: Tensor, more: bool) -> Tensor:
    """Flows [flows, rows] through some layers' weights, their mean over layers. `more` losses are to come."""
    through = [one for some in weights.values() for one in some]
    total = torch.zeros(keys.shape[:2])
    if not through:  # no layer up to this one attends
        return total
    gradients = torch.autograd.grad(loss, through, retain_graph=more, allow_unused=True)
    for one, gradient in zip(through, gradients, strict=True):
        if gradient is not None:  # an MLP beside its attention sees none of it
            product = (one.detach() * gradient).float().abs().unflatten(0, (len(queries), -1)).flatten(1, -3)
            flow = product.sum(1)[..., : keys.shape[-1]].cpu()  # [rows, queries, keys], without attention sinks
            total += torch.einsum("rqk,rq,frk->fr", flow, queries, keys)
    return total / len(weights)


def ready(model: PreTrainedModel, parts: Parts, routes: list[Route], verdicts: Verdicts, component: str) -> Gradients:
    """Keys and values are reused where that gives the stored states of two routes of unlike length, else nothing is.

    Run together, the shorter one has a gap, which all layers must skip.
    """
    modules: dict[int, Any] = {layer: MODULES[component](parts.blocks[layer]) for layer in verdicts.layers}
    by_start = sorted(range(len(routes)), key=lambda index: routes[index].start)
    tried = list(dict.fromkeys([by_start[0], by_start[-1]]))
    expected = verdicts.states[:, tried].float().flatten(0, 1)
    shared = shared_tokens([route.ids[: route.start].tolist() for route in routes])
    for prefix in (routes[0].ids[:shared], None):
        try:
            gradients = Gradients(model, parts, modules, prefix)
            _, states = gradients.run([routes[index] for index in tried], verdicts.of(tried))
        except (RuntimeError, TypeError, AttributeError, KeyError, IndexError) as error:  # from the model's own code
            if out_of_memory(error) or prefix is None:
                raise
            continue
        difference = relative_difference(states.flatten(0, 1), expected, model.dtype)
        if difference <= allowed(model.dtype, verdicts.rounding):
            return gradients
        if prefix is not None:
            log.warning("keys and values cannot be reused, which is slower (relative difference %.2g)", difference)
    raise ValueError(
        f"The states of the model are not those that were extracted (relative difference {difference:.2g}); extract "
        "the activations again, or take saliency out of `experiments`."
    )
