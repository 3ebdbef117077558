"""Decides how a model is run, by trying: in packs where these equal the model's own code, else in plain batches.

Refuses a model that neither fits, in one sentence, before any other work.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from anchorscope.engine.attention import compute_prefix, packed_attention, run_decoder
from anchorscope.engine.batches import out_of_memory
from anchorscope.engine.packing import Branch, Pack, Tree, trunk
from anchorscope.engine.parts import Parts, decoder_of, find_parts, input_device, layers_listed
from anchorscope.engine.plain import Row, run_rows
from anchorscope.engine.scores import own_attention
from anchorscope.files.logs import log

# Allowed relative difference of hidden states. In half precision, two orders of summation differ by up to 6 %.
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.1}
# The same for the attention of one sequence, computed twice side by side.
LEAK = {torch.float32: 1e-4, torch.bfloat16: 0.02, torch.float16: 0.02}
PREFIX = 32  # tokens of a shared prefix that a trial keeps
NOISE = 5.0  # added to cut states, in units of their own size; what sees them changes beyond any rounding


@dataclass(frozen=True)
class Path:
    """How a model is run, and its parts."""

    name: str  # packed or plain
    attention: str  # which of the model's own attention codes is right in plain batches: sdpa or eager
    parts: Parts
    kind: str  # of model

    def running(self, model: PreTrainedModel) -> AbstractContextManager[None]:
        """Let the model run on this path while the block runs."""
        return packed_attention(model) if self.name == "packed" else own_attention(model, self.attention)

    def plain(self, reason: str = "") -> "Path":
        """The plain path of the same model, and in the log the reason why it is taken."""
        if reason:
            log.warning(
                "%s models run on the plain path, padded batches through their own attention (%s), which is slower: %s",
                self.kind,
                self.attention,
                reason,
            )
        return replace(self, name="plain")

    def as_json(self) -> dict:
        return {"name": self.name, "attention": self.attention, "without_attention": self.parts.without_attention}


@torch.inference_mode()
def choose_path(model: PreTrainedModel, ids: list[int], shared: int) -> Path:
    """Run one sequence in every way, clean and with a cut, and take the fastest way that is right."""
    kind = model.config.get_text_config().model_type
    if len(ids) <= shortest_window(model.config):
        ids, shared = without_middle(ids, shared)
    try:
        parts = find_parts(model)
        return _Trial(model, parts, np.asarray(ids, np.int64), shared=shared).path(kind)
    except (RuntimeError, TypeError, AttributeError, KeyError, IndexError) as error:  # from the model's own code
        if out_of_memory(error):
            raise
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{kind} models cannot be measured: their own code stops at plain text ({reason}).") from error


def without_middle(ids: list[int], shared: int) -> tuple[list[int], int]:
    """A sequence with only the first and the last tokens of its shared prefix: each job waits for the trial."""
    if shared <= PREFIX:
        return ids, shared
    return ids[:1] + ids[shared - PREFIX + 1 :], PREFIX


def shortest_window(config: PreTrainedConfig) -> float:
    """How many tokens every layer sees at least, by whatever name the config gives to a window or chunk."""
    found = [
        value
        for name, value in config.get_text_config().to_dict().items()
        if ("window" in name or "chunk" in name) and not ("layer" in name or "pattern" in name)
    ]
    return min((size for size in found if type(size) is int and size > 0), default=float("inf"))


class _Trial:
    """One sequence with a cut, and the same sequence, clean, without its last token."""

    def __init__(self, model: PreTrainedModel, parts: Parts, ids: np.ndarray, shared: int):
        self.model, self.parts, self.ids = model, parts, ids
        self.shared = min(shared, max(0, len(ids) - 2))
        places = [*range(1, len(ids) - 2)][-5::2]  # some of the last tokens, but not the very last
        self.cut = [place for place in places if place >= self.shared] or places
        layers = range(len(parts.blocks))
        self.rows = [Row(ids, self.cut, layers), Row(ids[: max(1, len(ids) - 1)], [], layers)]
        self.last = [len(row.ids) - 1 for row in self.rows]

    def path(self, kind: str) -> Path:
        """The packed path where it agrees with a plain batch; the plain one where cut tokens reach no others in it."""
        alone = self._alone()
        for attention in ("sdpa", "eager"):
            found = Path("packed", attention, self.parts, kind)
            try:
                with own_attention(self.model, attention):
                    self.plain = self._plain()
                    difference = relative_difference(self.plain[-1], alone, self.model.dtype)
                    if difference > TOLERANCE[self.model.dtype]:
                        fault = f"tokens see those that follow them (difference {difference:.2g} when padded)"
                        continue
                    not_packed = self._mixed() or self.packed_fault()
                    if not_packed is None:
                        return found
                    leaking = self._leaking() if self.cut else []
            except ValueError as error:  # a model without this code, or one in which nothing can be hidden
                fault = str(error).split("\n")[0]
                continue
            if not leaking:
                return found.plain(not_packed)
            fault = self._leak_fault(leaking)
        raise ValueError(f"{kind} models cannot be measured: {fault}.")

    def _leak_fault(self, layers: list[int]) -> str:
        """What is wrong with layers in which cut tokens reach others, and how they do where that can be seen."""
        attentions = [self.parts.blocks[layer].attention for layer in layers]
        inside = [part for attention in attentions if attention for part in attention.modules()]
        by = ", by convolutions over tokens" if any(isinstance(part, nn.Conv1d) for part in inside) else ""
        return f"tokens that are cut still reach others in {layers_listed(layers)}{by}"

    def _mixed(self) -> str | None:
        """Why a model with layers of another kind is not packed: they mix the tokens that follow one another."""
        without = self.parts.without_attention
        return f"{layers_listed(without)} of them have no attention that could be cut" if without else None

    def packed_fault(self) -> str | None:
        """Why a packed pass is not what the model computes; None if it is."""
        try:
            states = self._packed()
        except Exception as error:  # whatever the model's code makes of a pack
            if out_of_memory(error):
                raise
            return f"their code does not take a pack ({type(error).__name__})"
        both = zip(states, self.plain, strict=True)
        difference = max(relative_difference(found, expected, self.model.dtype) for found, expected in both)
        if difference > TOLERANCE[self.model.dtype]:  # NaN passes here, and is reported where it is stored
            return f"a packed pass leaves out something of their attention (relative difference {difference:.2g})"
        return None

    def _alone(self) -> Tensor:
        """[layers, width] of the shorter sequence on its own, as the model itself computes it."""
        with own_attention(self.model, "eager"), self._recorded([self.last[-1]]) as states:
            tokens = torch.from_numpy(self.rows[-1].ids)[None].to(input_device(self.model))
            decoder_of(self.model)(input_ids=tokens, use_cache=False)
        return torch.stack(states)[:, 0]

    def _plain(self) -> Tensor:
        """[rows, layers, width] on the plain path."""
        length = max(len(row.ids) for row in self.rows)
        with self._recorded([index * length + last for index, last in enumerate(self.last)]) as states:
            run_rows(self.model, self.parts, self.rows)
        return torch.stack(states, dim=1)

    def _packed(self) -> Tensor:
        """[rows, layers, width] in a pack of two trees, the first with a branch."""
        with packed_attention(self.model):
            past = compute_prefix(self.model, self.ids[: self.shared])
            known = np.arange(self.shared)
            trees = [trunk(known, row.ids[self.shared :]) for row in self.rows]
            fork = min(self.cut, default=len(self.ids) - 1)
            after = np.setdiff1d(np.arange(fork, len(self.ids)), self.cut)
            trees[0] = Tree(known, [trees[0].branches[0], Branch(self.ids[after], after, fork)])
            pack = Pack(trees, self.shared)
            where = [(0, 1), (1, 0)]
            places = [pack.places(*one, [last])[0] for one, last in zip(where, self.last, strict=True)]
            with self._recorded(places) as states:
                run_decoder(self.model, pack, past)
        return torch.stack(states, dim=1)

    @contextmanager
    def _recorded(self, places: list[int]) -> Iterator[list[Tensor]]:
        """The block outputs at some of all tokens, [places, width] for each layer, on the host."""
        states: list[Tensor] = []

        def keep(module: nn.Module, args: Any, output: Any) -> None:
            states.append(self.parts.states(output).flatten(0, -2)[places].float().cpu())

        with ExitStack() as stack:
            for block in self.parts.blocks:
                stack.callback(block.module.register_forward_hook(keep).remove)
            yield states

    def _leaking(self) -> list[int]:
        """The layers whose attention still sees what is cut.

        The cut sequence is run twice side by side. Before each attention, noise is added to the cut states of the
        second, which must not change what comes out for any other token. After each block both are equal again.
        """
        leaking: list[int] = []
        others = np.setdiff1d(np.arange(len(self.ids)), self.cut)

        def add_noise(module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
            given = [*args, *kwargs.values()]
            states = next(value for value in given if isinstance(value, Tensor) and value.dim() == 3)
            noisy = states.clone()
            noise = torch.randn(len(self.cut), states.shape[-1], generator=torch.Generator().manual_seed(0))
            noisy[1, self.cut] += (NOISE * states[1, self.cut].float().std()).to(states) * noise.to(states)
            return tuple(noisy if value is states else value for value in args), {
                name: noisy if value is states else value for name, value in kwargs.items()
            }

        def compare(layer: int) -> Callable:
            def hook(module: nn.Module, args: Any, output: Any) -> None:
                one, other = self.parts.states(output)[:, others].float()
                if ((other - one).norm(dim=-1) > LEAK[self.model.dtype] * one.norm(dim=-1)).any():
                    leaking.append(layer)

            return hook

        def make_equal(module: nn.Module, args: Any, output: Any) -> None:
            rows = self.parts.by_row(output)
            rows[1] = rows[0]

        with ExitStack() as stack:
            for layer, block in enumerate(self.parts.blocks):
                if block.attention is not None:
                    stack.callback(block.attention.register_forward_pre_hook(add_noise, with_kwargs=True).remove)
                    stack.callback(block.attention.register_forward_hook(compare(layer)).remove)
                stack.callback(block.module.register_forward_hook(make_equal).remove)
            run_rows(self.model, self.parts, [self.rows[0], self.rows[0]])
        return leaking


def relative_difference(found: Tensor, expected: Tensor, dtype: torch.dtype) -> float:
    """The relative difference of vectors [layers, width]: the largest, but in half precision the middle one.

    There, rounding may choose another expert in one layer, which changes all layers after it.
    """
    relative = (found - expected).norm(dim=-1) / expected.norm(dim=-1)
    return float(relative.max() if dtype == torch.float32 else relative.median())
