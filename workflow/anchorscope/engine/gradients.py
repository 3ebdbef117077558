"""How much of a loss flows through each attention weight: |weight x gradient|, summed over heads, queries and keys.

The only part of the engine that keeps gradients. A loss at one token depends on the attention weights of a query only
through tokens from that query on. So gradients are kept for the queries' tokens alone: keys and values of all tokens
before them are computed first, without gradients, and what all rows begin with is computed once.
"""

import copy
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel

from anchorscope.engine.packing import to_device
from anchorscope.engine.parts import Parts, decoder_of, input_device, layers_listed
from anchorscope.engine.scores import Scores

WEIGHED = (torch.softmax, Tensor.softmax, F.softmax)  # what returns weights


@dataclass(frozen=True)
class Route:
    """A sequence up to the token that is read, the first of the queries, which go on to its end, and sets of keys."""

    ids: np.ndarray
    start: int
    keys: list[list[int]]  # one list for each flow


@dataclass(frozen=True)
class Probes:
    """Of each row the probe whose loss is differentiated: logit = state . weight + bias."""

    weight: Tensor  # [layers, rows, width]
    bias: Tensor  # [layers, rows]

    def loss(self, layer: int, states: Tensor) -> Tensor:
        """The summed log loss of the probes' own verdicts on states [rows, width]."""
        logits = (states * self.weight[layer].to(states.device)).sum(-1) + self.bias[layer].to(states.device)
        return F.softplus(-logits.abs()).sum()


class Weights(Scores):
    """Also keeps the weights of every attention, by layer, so that a loss can be differentiated by them."""

    def __init__(self, rows: int, queries: int):
        super().__init__(rows, queries)
        self.layer = 0  # which runs
        self.kept: dict[int, list[Tensor]] = {}  # [rows, heads, queries, keys]

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        made = super().__torch_function__(func, types, args, kwargs)
        if func not in WEIGHED or not args or not self._are_scores(args[0]):
            return made
        if not made.requires_grad:  # the first layer's, from which all later states get theirs
            made.requires_grad_()
        self.kept.setdefault(self.layer, []).append(made)
        return made


class Gradients:
    """A model that is ready to differentiate probes' losses at some layers."""

    def __init__(self, model: PreTrainedModel, parts: Parts, modules: dict[int, nn.Module], prefix: np.ndarray | None):
        """`modules` are read, by layer. With `prefix`, what all rows begin with, keys and values are reused."""
        self.model, self.parts, self.modules = model, parts, modules
        self.shared = 0 if prefix is None else len(prefix)
        self.prefix = None if prefix is None else DynamicCache()
        if prefix is not None and len(prefix):
            self._advance(self.prefix, prefix[None])

    def run(self, routes: list[Route], probes: Probes) -> tuple[Tensor, Tensor]:
        """Flows [layers, flows, rows], each a mean over the layers up to that one, and states [layers, rows, width].

        With a prefix, all routes start at the same place.
        """
        known = 0 if self.prefix is None else routes[0].start
        past = None
        if self.prefix is not None:
            past = self._past(self.prefix, np.stack([route.ids[:known] for route in routes]))
        length = max(len(route.ids) for route in routes) - known
        tokens = np.stack([np.pad(route.ids[known:], (0, length + known - len(route.ids)), "edge") for route in routes])
        last = torch.tensor([len(route.ids) - known - 1 for route in routes])
        with torch.enable_grad():
            states, weights = self._forward(tokens, past, last)
            queries, keys = _masks(routes, known, length)
            values = []
            for number, (layer, read) in enumerate(states.items()):
                loss = probes.loss(number, read.float())
                more = number + 1 < len(states)
                values.append(
                    _flow(loss, {one: some for one, some in weights.items() if one <= layer}, queries, keys, more)
                )
        return torch.stack(values), torch.stack([read.detach().float().cpu() for read in states.values()])

    def _forward(
        self, tokens: np.ndarray, past: DynamicCache | None, last: Tensor
    ) -> tuple[dict[int, Tensor], dict[int, list[Tensor]]]:
        """The state at each row's `last` token by layer that is read, and the weights of every layer."""
        weights, states = Weights(*tokens.shape), {}
        rows = torch.arange(len(tokens))

        def enter(layer: int) -> Any:
            return lambda module, args: setattr(weights, "layer", layer)

        def keep(layer: int) -> Any:
            def hook(module: nn.Module, args: Any, output: Any) -> None:
                states[layer] = self.parts.states(output)[rows, last]

            return hook

        with ExitStack() as stack:
            for layer, block in enumerate(self.parts.blocks):
                stack.callback(block.module.register_forward_pre_hook(enter(layer)).remove)
            for layer, module in self.modules.items():
                stack.callback(module.register_forward_hook(keep(layer)).remove)
            stack.enter_context(weights)
            self._advance(past, tokens)
        unmet = [
            n for n, block in enumerate(self.parts.blocks) if block.attention is not None and n not in weights.kept
        ]
        if unmet:
            raise ValueError(
                f"{self.model.config.get_text_config().model_type} models show no weights of their attention in "
                f"{layers_listed(unmet)}; take saliency out of `experiments`."
            )
        return dict(sorted(states.items())), weights.kept

    @torch.no_grad()
    def _past(self, prefix: DynamicCache, ids: np.ndarray) -> DynamicCache:
        """Keys and values of tokens [rows, known], the prefix's among them."""
        past = copy.deepcopy(prefix)
        if self.shared:
            past.batch_repeat_interleave(len(ids))
        self._advance(past, ids[:, self.shared :])
        return past

    def _advance(self, past: DynamicCache | None, tokens: np.ndarray) -> None:
        """Run tokens [rows, tokens] after those whose keys and values are there, and add theirs."""
        if tokens.shape[1]:
            given = to_device(tokens.astype(np.int64), input_device(self.model))
            decoder_of(self.model)(input_ids=given, past_key_values=past, use_cache=past is not None)


def _masks(routes: list[Route], known: int, length: int) -> tuple[Tensor, Tensor]:
    """Which tokens are a route's queries, [rows, queries], and which its keys, [flows, rows, keys]; one or zero."""
    queries = torch.zeros(len(routes), length)
    keys = torch.zeros(len(routes[0].keys), len(routes), known + length)
    for row, route in enumerate(routes):
        queries[row, route.start - known : len(route.ids) - known] = 1
        for flow, places in enumerate(route.keys):
            keys[flow, row, places] = 1
    return queries, keys


def _flow(loss: Tensor, weights: dict[int, list[Tensor]], queries: Tensor, keys: Tensor, more: bool) -> Tensor:
    """Flows [flows, rows] through some layers' weights, their mean over layers. `more` losses are to come."""
    through = [one for some in weights.values() for one in some]
    gradients = torch.autograd.grad(loss, through, retain_graph=more, allow_unused=True)
    total = torch.zeros(keys.shape[:2])
    for one, gradient in zip(through, gradients, strict=True):
        if gradient is not None:  # an MLP beside its attention sees none of it
            product = (one.detach() * gradient).float().abs().unflatten(0, (len(queries), -1)).flatten(1, -3)
            flow = product.sum(1)[..., : keys.shape[-1]].cpu()  # [rows, queries, keys], without attention sinks
            total += torch.einsum("rqk,rq,frk->fr", flow, queries, keys)
    return total / len(weights)
