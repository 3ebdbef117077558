"""Decides how a model is run, by trying: in packs where these equal the model's own code, else in plain batches.

Refuses a model that neither fits, in one sentence, before any other work.
"""

from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from anchorscope.engine.attention_mask import own_attention
from anchorscope.engine.batches import out_of_memory
from anchorscope.engine.packing import Branch, Pack, Tree, trunk
from anchorscope.engine.packs import compute_prefix, packed_attention, run_decoder
from anchorscope.engine.parts import Parts, decoder_of, find_parts, input_device, layers_listed
from anchorscope.engine.passes import run_rows
from anchorscope.engine.same_states import Watched, noise_like, replaced, states_among, watching
from anchorscope.engine.work import Variant
from anchorscope.files.logs import log

# How far rounding moves what attention gives, relative to it, where nothing shows that it moves further.
ROUNDING = {torch.float32: 1e-5, torch.bfloat16: 4e-3, torch.float16: 1e-3}
# The same for states after many layers, in which small differences grow.
GROWN = {torch.float32: 2.5e-4, torch.bfloat16: 0.025, torch.float16: 0.025}
BEYOND = 4.0  # times as far as rounding moves it: what is further off is an error
# What the attention of one sequence may differ by, computed twice side by side.
LEAK = {torch.float32: 1e-4, torch.bfloat16: 0.02, torch.float16: 0.02}
PREFIX = 32  # tokens of a shared prefix that a trial keeps
SEEN = {torch.float32: 1e-3, torch.bfloat16: 0.05, torch.float16: 0.05}  # how far padding may move what attention gives
SMALL, TINY = 1e-3, 1e-30  # added to the size of a vector: a thousandth of what others have, and something
PADDING = 8  # tokens after the trial's sequences, which none of them may see


@dataclass(frozen=True)
class EnginePath:
    """How a model is run, and its parts."""

    name: str  # packed or plain
    attention: str  # which of the model's own attention codes is right in plain batches: sdpa or eager
    parts: Parts
    kind: str  # of model
    dtype: torch.dtype
    rounding: float  # how far two of the model's own ways to compute states differ, relative to them
    moved: float | None = None  # how far states differ from those in float32; None where that could not be computed
    reason: str = ""  # why the model is not packed

    def running(self, model: PreTrainedModel) -> AbstractContextManager[None]:
        """Let the model run on this path while the block runs."""
        return packed_attention(model) if self.name == "packed" else own_attention(model, self.attention)

    def plain(self, reason: str = "") -> "EnginePath":
        """The plain path of the same model, and in the log the reason why it is taken."""
        if reason:
            log.warning(
                "%s models run on the plain path, padded batches through their own attention (%s), which is slower: %s",
                self.kind,
                self.attention,
                reason,
            )
        return replace(self, name="plain", reason=reason)

    def same(self, found: Tensor, expected: Tensor) -> bool:
        """Whether states [vectors, width] differ by no more than rounding does."""
        return relative_difference(found, expected, self.dtype) <= allowed(self.dtype, self.rounding)

    def as_json(self) -> dict:
        return {
            "name": self.name,
            "reason": self.reason,
            "attention": self.attention,
            "without_attention": self.parts.without_attention,
            "dtype": str(self.dtype).removeprefix("torch."),
            "rounding": float(f"{max(self.rounding, GROWN[self.dtype]):.2g}"),
            "moved": None if self.moved is None else float(f"{self.moved:.2g}"),
        }


def allowed(dtype: torch.dtype, rounding: float) -> float:
    """How far states may differ, relative to them, where rounding alone moves them by so much."""
    return BEYOND * max(GROWN[dtype], rounding)


@torch.inference_mode()
def choose_path(model: PreTrainedModel, ids: list[int], shared: int) -> EnginePath:
    """Run one sequence in every way, clean and with a cut, and take the fastest way that is right."""
    kind = model.config.get_text_config().model_type
    if len(ids) <= shortest_window(model.config):
        ids, shared = without_middle(ids, shared)
    try:
        return _Trial(model, find_parts(model), np.asarray(ids, np.int64), shared=shared).path(kind)
    except (RuntimeError, TypeError, AttributeError, KeyError, IndexError) as error:  # from the model's own code
        if out_of_memory(error):
            raise
        why = f"its own code stops at plain text ({' '.join(str(error).split())[:200]})"
        raise ValueError(f"This {kind} model cannot be measured: {why}.") from error


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
    """One sequence with a cut, and the same sequence, clean, without its last token.

    They are run as a plain batch; then alone and in a pack, each layer once from the batch's own states and once from
    end to end. What a layer gives from the same states may differ by rounding only. How far rounding moves it is seen
    in the model's own code: alone, it attends by another one of its codes; and half precision is run in float32, too.
    """

    def __init__(self, model: PreTrainedModel, parts: Parts, ids: np.ndarray, shared: int):
        self.model, self.parts, self.ids, self.dtype = model, parts, ids, model.dtype
        self.shared = min(shared, max(0, len(ids) - 2))
        places = [*range(1, len(ids) - 2)][-5::2]  # some of the last tokens, but not the very last
        self.cut = [place for place in places if place >= self.shared] or places
        self.rows = [Variant(ids, read=[], cut=self.cut), Variant(ids[: max(1, len(ids) - 1)], read=[])]
        self.fork = min(self.cut, default=len(ids) - 1)
        # Watched are the tokens of the first row, then those of the second.
        self.after = [place for place in range(self.fork, len(ids)) if place not in self.cut]
        self.clean = [len(ids) + place for place in range(len(self.rows[1].ids))]
        self.last = [len(ids) - 1, self.clean[-1]]

    def path(self, kind: str) -> EnginePath:
        """The packed path where it agrees with a plain batch; the plain one where cut tokens reach no others in it."""
        for attention in ("sdpa", "eager"):
            try:
                with own_attention(self.model, attention):
                    self._run_plain()
                    ahead = self._ahead()
                    if self._beyond(ahead, SEEN[self.dtype]):
                        fault = f"tokens see those that follow them (difference {ahead:.2g} when padded)"
                        continue
                    # Those of eight bits choose what they round by all tokens of a batch.
                    if getattr(self.model, "is_quantized", False) and self._beyond(self.rounding, SEEN[self.dtype]):
                        fault = f"what it computes depends on what else is in a batch (difference {self.rounding:.2g})"
                        continue
                    found = EnginePath("packed", attention, self.parts, kind, self.dtype, self.rounding, self._moved())
                    without = self.parts.without_attention  # layers that mix tokens in another way
                    not_packed = (
                        f"{layers_listed(without)} of them have no attention that could be cut"
                        if without
                        else self.packed_fault()
                    )
                    if not_packed is None:
                        return found
                    leaking = self._leaking() if self.cut else []
            except ValueError as error:  # a model without this code, or one in which nothing can be hidden
                fault = str(error).split("\n")[0]
                continue
            if not leaking:
                return found.plain(not_packed)
            fault = self._leak_fault(leaking)
        raise ValueError(f"This {kind} model cannot be measured: {fault}.")

    def _leak_fault(self, layers: list[int]) -> str:
        """What is wrong with layers in which cut tokens reach others, and how they do where that can be seen."""
        attentions = [self.parts.blocks[layer].attention for layer in layers]
        inside = [part for attention in attentions if attention for part in attention.modules()]
        by = ", by convolutions over tokens" if any(isinstance(part, nn.Conv1d) for part in inside) else ""
        return f"tokens that are cut still reach others in {layers_listed(layers)}{by}"

    def _run_plain(self) -> None:
        """Both rows as a plain batch, whose padding is noise in every layer, and the clean one alone, by eager code."""
        count, length = len(self.ids), len(self.ids) + PADDING
        rows = [range(count), range(length, length + len(self.clean))]
        padding = [*range(count, length), *range(rows[1].stop, 2 * length)]
        exact = Watched() if self.dtype != torch.float32 else None
        with watching(self.parts, [*rows[0], *rows[1]], unseen=padding, exact=exact) as self.plain:
            run_rows(self.model, self.parts, self.rows, padding=PADDING)
        self.exact = exact or Watched()
        self.expected = self.exact.attended or self.plain.attended  # by attention, from the same states
        with own_attention(self.model, "eager"):
            self.alone = self._alone(self._given(self.clean))
            self.finite = all(torch.isfinite(states).all() for states in self.alone.states)
            to_end = self._alone(None) if exact else self.alone  # float32 is fine enough to tell without
        one, other = (torch.stack([states[-1] for states in some.states]) for some in (to_end, self.plain))
        self.rounding = relative_difference(one, other, self.dtype)

    def _beyond(self, difference: float, limit: float) -> bool:
        """Whether a difference is larger than that, or no number although the model itself gives nothing but numbers.

        A model that gives others is refused where its states are stored.
        """
        return not difference <= limit if self.finite else difference > limit

    def _alone(self, given: list[Tensor] | None) -> Watched:
        tokens = torch.from_numpy(self.rows[1].ids)[None].to(input_device(self.model))
        with watching(self.parts, range(len(self.clean)), given) as watched:
            decoder_of(self.model)(input_ids=tokens, use_cache=False)
        return watched

    def _given(self, tokens: list[int]) -> list[Tensor]:
        """What the batch's layers were given at some of the watched tokens."""
        return [states[tokens] for states in self.plain.given]

    def _ahead(self) -> float:
        """How far padding moves what attention gives, relative to it."""
        moved = [
            off(alone, plain[self.clean])
            for alone, plain in zip(self.alone.attended, self.plain.attended, strict=True)
            if alone is not None and plain is not None
        ]
        return largest(torch.tensor(moved), self.dtype) if moved else 0.0

    def _noise(self, layer: int) -> float:
        """How far rounding moves what attention gives in a layer, relative to it."""
        expected, plain, alone = (some[layer] for some in (self.expected, self.plain.attended, self.alone.attended))
        if expected is None or plain is None or alone is None:
            return ROUNDING[self.dtype]
        moved = [off(plain[some], expected[some]) for some in (self.after, self.clean)]
        return max(ROUNDING[self.dtype], *moved, off(alone, expected[self.clean]))

    def _moved(self) -> float | None:
        """How far states differ from those that float32 gives from end to end; None where that was not computed."""
        if not self.exact.states:
            return None
        ends = (torch.stack([states[self.last] for states in some.states], dim=1) for some in (self.plain, self.exact))
        return max(relative_difference(one, other, self.dtype) for one, other in zip(*ends, strict=True))

    def packed_fault(self) -> str | None:
        """Why a packed pass is not what the model computes; None if it is."""
        try:
            layer_by_layer, to_end = self._packed(forced=True), self._packed(forced=False)
        except Exception as error:  # whatever the model's code makes of a pack
            if out_of_memory(error):
                raise
            return f"their code does not take a pack ({type(error).__name__})"
        return self._fault_of_layers(layer_by_layer) or self._fault_to_end(to_end)

    def _fault_of_layers(self, found: list[tuple[list[int], Watched]]) -> str | None:
        for tokens, watched in found:
            first, own = (states[0].flatten(1).float().cpu() for states in (watched.given, self._given(tokens)))
            if self._beyond(off(first, own), BEYOND * ROUNDING[self.dtype]):
                return "a packed pass begins with other states than theirs"
            for layer, (attended, expected) in enumerate(zip(watched.attended, self.expected, strict=True)):
                if attended is None or expected is None:
                    continue
                difference, noise = off(attended, expected[tokens]), self._noise(layer)
                if self._beyond(difference, BEYOND * noise):
                    return (
                        f"a packed pass leaves out something of their attention (layer {layer} differs by "
                        f"{difference:.2g}, where rounding moves it by {noise:.2g})"
                    )
        return None

    def _fault_to_end(self, found: list[tuple[list[int], Watched]]) -> str | None:
        for tokens, watched in found:
            own = torch.stack([states[tokens[-1]] for states in self.plain.states])
            difference = relative_difference(torch.stack([states[-1] for states in watched.states]), own, self.dtype)
            if self._beyond(difference, allowed(self.dtype, self.rounding)):
                return (
                    f"a packed pass leaves out something (from end to end it differs by {difference:.2g}, where "
                    f"rounding moves states by {self.rounding:.2g})"
                )
        return None

    def _packed(self, *, forced: bool) -> list[tuple[list[int], Watched]]:
        """Which watched tokens stand in the prefix, the branch and the clean sequence, and what a pack gives there.

        The pack has two trees, the first with a branch. With `forced` each layer begins with the plain batch's states,
        and what is cut is noise.
        """
        known = np.arange(self.shared)
        trees = [trunk(known, row.ids[self.shared :]) for row in self.rows]
        branch = Branch(self.ids[self.after], np.array(self.after), self.fork)
        pack = Pack([Tree(known, [trees[0].branches[0], branch]), trees[1]], self.shared)
        positions = range(self.shared, len(self.clean))
        before = [place for place in positions if place < self.fork]
        tokens = [self.clean[place] for place in before] + self.after + self.clean[self.shared :]
        places = pack.places(0, 0, before) + pack.places(0, 1, self.after) + pack.places(1, 0, list(positions))
        unseen = pack.places(0, 0, [place for place in self.cut if place >= self.shared]) if forced else []
        prefix = self.clean[: self.shared]
        with packed_attention(self.model):
            with watching(self.parts, range(self.shared), self._given(prefix) if forced else None) as of_prefix:
                past = compute_prefix(self.model, self.ids[: self.shared])
            with watching(self.parts, places, self._given(tokens) if forced else None, unseen) as watched:
                run_decoder(self.model, pack, past)
        _, branch_at, clean_at = np.split(np.arange(len(tokens)), [len(before), len(before) + len(self.after)])
        found = [([tokens[at] for at in part], watched.among(part.tolist())) for part in (branch_at, clean_at)]
        return [(prefix, of_prefix), *found] if self.shared else found

    def _leaking(self) -> list[int]:
        """The layers whose attention still sees what is cut.

        The cut sequence is run twice side by side. Before each attention, noise is added to the cut states of the
        second, which must not change what comes out for any other token. After each block both are equal again.
        """
        leaking: list[int] = []
        others = np.setdiff1d(np.arange(len(self.ids)), self.cut)

        def add_noise(module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
            states = states_among(args, kwargs)
            noisy = states.clone()
            noisy[1, self.cut] += noise_like(states[1, self.cut], states[0])
            return replaced(args, kwargs, states, noisy)

        def compare(layer: int, module: nn.Module, args: Any, output: Any) -> None:
            one, other = self.parts.states(output)[:, others].float()
            if ((other - one).norm(dim=-1) > LEAK[self.model.dtype] * one.norm(dim=-1)).any():
                leaking.append(layer)

        def make_equal(module: nn.Module, args: Any, output: Any) -> None:
            rows = self.parts.by_row(output)
            rows[1] = rows[0]

        with ExitStack() as stack:
            for layer, block in enumerate(self.parts.blocks):
                if block.attention is not None:
                    stack.enter_context(block.attention.register_forward_pre_hook(add_noise, with_kwargs=True))
                    stack.enter_context(block.attention.register_forward_hook(partial(compare, layer)))
                stack.enter_context(block.module.register_forward_hook(make_equal))
            run_rows(self.model, self.parts, [self.rows[0], self.rows[0]])
        return leaking


def off(found: Tensor, expected: Tensor) -> float:
    """How far vectors [tokens, width] lie from what they should be, relative to it: root mean square over tokens."""
    size = expected.norm(dim=-1)
    relative = (found - expected).norm(dim=-1) / (size + SMALL * size.square().mean().sqrt() + TINY)
    return float(relative.square().mean().sqrt())


def relative_difference(found: Tensor, expected: Tensor, dtype: torch.dtype) -> float:
    """The relative difference of vectors [layers, width]: the largest, but in half precision the middle one."""
    return largest((found - expected).norm(dim=-1) / expected.norm(dim=-1), dtype)


def largest(values: Tensor, dtype: torch.dtype) -> float:
    """The largest of some layers' values, but in half precision the middle one.

    There, rounding may choose another expert in one layer, which changes all layers after it.
    """
    return float(values.max() if dtype == torch.float32 else values.median())
