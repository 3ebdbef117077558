"""Packs: attention over trees of variants, and what these begin with alike, which is computed once.

Registered with transformers as an attention implementation, so that every model that takes one can use it: the model's
own code makes queries, keys and values, and this module decides which token sees which.

Questions begin alike, with "Who wrote" or "What is the capital of". Such an opening is computed once for all questions
that begin so, and each of them then needs only the rest of its tokens.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel

from anchorscope.engine.attention_mask import attending_by
from anchorscope.engine.fused import HAS_TRITON, fused
from anchorscope.engine.packing import Branch, Pack, Padded, Tree, to_device, trunk
from anchorscope.engine.parts import decoder_of, ending_after, input_device
from anchorscope.engine.passes import Forward, Places
from anchorscope.engine.work import Item, Trunk, beginning, shared_tokens

if HAS_TRITON:
    from anchorscope.engine.kernels import attend_ragged

NAME = "anchorscope"
RAGGED_DTYPES = (torch.bfloat16, torch.float16)
SHARERS = 4  # how many sequences have an opening at least; with fewer, there are more openings but hardly more is saved
MOST = 1024  # tokens of openings: they are computed in one pass, before any batch has shown how much memory there is

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Past:
    """Tokens that were computed before: for each layer the pools of keys and values, [tokens, heads, head_width]."""

    pools: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    grows: bool = False  # whether the tokens of a forward pass stay in the pools

    def growing(self) -> "Past":
        """Pools that begin with these tokens and can take more."""
        return Past(dict(self.pools), grows=True)

    def __len__(self) -> int:
        return len(next(iter(self.pools.values()), ((),))[0])

    def extended(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """The pools of a layer, with the tokens of this pass at their end."""
        if layer in self.pools:
            keys, values = (torch.cat(both) for both in zip(self.pools[layer], (keys, values), strict=True))
        if self.grows:
            self.pools[layer] = keys, values
        return keys, values


def attend(
    module: nn.Module,
    query: Tensor,  # [1, heads, tokens, head_width]
    key: Tensor,  # [1, key_value_heads, tokens, head_width]
    value: Tensor,
    attention_mask: None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    *,
    pack: Pack,
    past: Past,
    **kwargs: object,
) -> tuple[Tensor, None]:
    """Attention of every packed token over its branch, [1, tokens, heads, head_width]."""
    query, key, value = (tensor.squeeze(0).transpose(0, 1) for tensor in (query, key, value))
    keys, values = past.extended(cast(int, module.layer_idx), key, value)
    placed = pack.on(query.device)
    sliding = sliding_window if sliding_window is not None and sliding_window < pack.longest else None
    # What a branch leaves out counts for a window, of which the kernel does not know.
    if sliding is None and not pack.biased and takes_ragged(query, keys, values):
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        out = attend_ragged(query, keys, values, placed.ragged, scale, softcap=softcap)
    else:
        added = query.dtype if pack.biased else None
        parts = [
            _padded(query, keys, values, group, mask=group.mask(sliding, added), scaling=scaling, softcap=softcap)
            for group in placed.padded
        ]
        out = torch.cat(parts).index_select(0, placed.back)
    return out[None], None


AttentionInterface.register(NAME, attend)


@contextmanager
def packed_attention(model: PreTrainedModel) -> Iterator[None]:
    """Let the model run packs while the block runs."""
    with attending_by(model, NAME), fused(model):
        yield


def takes_ragged(*states: Tensor) -> bool:
    """Whether there is a kernel for sequences of different lengths that takes these queries, keys and values."""
    alike = len({(tensor.shape[-1], tensor.dtype) for tensor in states}) == 1
    packed = all(tensor.is_cuda and tensor.dtype in RAGGED_DTYPES and tensor.stride(-1) == 1 for tensor in states)
    return HAS_TRITON and alike and packed


def _padded(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    group: Padded,
    mask: Tensor,
    scaling: float | None,
    softcap: float | None,
) -> Tensor:
    """Each tree of a group as a sequence, under a mask: boolean, or added to the scores.

    [trees x padded tokens, heads, head_width]
    """
    trees, shared = len(group.trees), query.shape[1] // keys.shape[1]
    query, keys, values = (
        states.index_select(0, places.flatten()).unflatten(0, (trees, -1)).transpose(1, 2)
        for states, places in ((query, group.queries[0]), (keys, group.keys[0]), (values, group.keys[0]))
    )
    # On a GPU, the fused kernels take a mask only if there are as many heads of keys as of queries.
    if query.is_cuda or softcap is not None:
        keys, values = keys.repeat_interleave(shared, dim=1), values.repeat_interleave(shared, dim=1)
    if softcap is None:
        out = F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=scaling, enable_gqa=True)
    else:
        scale = cast(float, scaling)  # models that cap their scores give one
        scores = softcap * torch.tanh(query @ keys.transpose(2, 3) * scale / softcap)
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
        out = scores.float().softmax(dim=-1).to(values.dtype) @ values
    return out.transpose(1, 2).flatten(0, 1)


def run_decoder(model: PreTrainedModel, pack: Pack, past: Past) -> Tensor:
    """The decoder's last hidden state [tokens, width], without the language-model head."""
    device = input_device(model)
    tokens, positions = (to_device(array, device)[None] for array in (pack.tokens, pack.positions))
    output = decoder_of(model)(input_ids=tokens, position_ids=positions, use_cache=False, pack=pack, past=past)
    return output.last_hidden_state[0, : pack.size]


def compute_prefix(model: PreTrainedModel, ids: Sequence[int] | np.ndarray, last: nn.Module | None = None) -> Past:
    """Run the tokens that all sequences have in common once, on their own; with `last`, no further than that module."""
    return extended_past(model, Pack([trunk([], ids)], 0), Past(), last) if len(ids) else Past()


def extended_past(model: PreTrainedModel, pack: Pack, past: Past, last: nn.Module | None = None) -> Past:
    """The pool with the tokens of a pack at its end."""
    more, size = past.growing(), len(past) + pack.size
    with ending_after(last):
        run_decoder(model, pack, more)
    return Past({layer: (keys[:size], values[:size]) for layer, (keys, values) in more.pools.items()})


class Openings:
    """A pool with the tokens that sequences begin with, and where in it those of each sequence are."""

    def __init__(self, model: PreTrainedModel, sequences: Sequence[Sequence[int]], last: nn.Module | None = None):
        """With `last`, the model runs no further than that."""
        begun = [tuple(ids) for ids in sequences]
        prefix = shared_tokens(begun)
        after = [ids[prefix:] for ids in begun]
        openings = find_openings(after, MOST)
        self.prefix, self.past = np.arange(prefix), Past()
        places: dict[Tokens, np.ndarray] = {(): self.prefix}  # in the pool, of each opening with the prefix before it
        if prefix or openings:
            tree = trunk([], begun[0][:prefix])
            for opening in openings:
                tree.branches.append(Branch(np.array(opening), prefix + np.arange(len(opening)), fork=prefix))
            pack = Pack([tree], 0)
            self.past = extended_past(model, pack, Past(), last)
            for opening, start in zip(openings, pack.starts[0][1:], strict=True):
                places[opening] = np.append(self.prefix, start + np.arange(len(opening)))
        lengths = sorted({len(opening) for opening in places}, reverse=True)
        # Of each sequence the places of the tokens that it begins with, as many as are there.
        self.known = [next(places[own[:n]] for n in lengths if own[:n] in places) for own in after]


def find_openings(sequences: Sequence[Tokens], most: int) -> list[Tokens]:
    """The longest beginning of each sequence that is also one of `SHARERS` - 1 others, if there is any.

    If they came to more than `most` tokens, more sequences have to share each.
    """
    ordered = sorted(sequences)
    common = np.array([shared_tokens(neighbours) for neighbours in pairwise(ordered)], np.int64)
    sharers = SHARERS
    while sharers <= len(ordered):
        # Sequences with the same beginning follow one another. In a run of them, all begin with what neighbours share.
        of_runs = sliding_window_view(common, sharers - 1).min(1)
        longest = sliding_window_view(np.pad(of_runs, sharers - 1), sharers).max(1)
        found = {ids[:length] for ids, length in zip(ordered, longest.tolist(), strict=True) if length}
        if sum(map(len, found)) <= most:
            return sorted(found)
        sharers *= 2
    return []


class Packs:
    """A model that is ready to run batches of items in packs.

    With a window, every branch has as many copies as the window has layers. Each in turn is set back to the clean
    state, and is read when it has run through the window's layers.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        items: Sequence[Item],
        layers: int,
        window: int | None = None,
        last: nn.Module | None = None,
    ):
        """With `last`, the model runs no further than that module."""
        self.model, self.window, self.copies = model, window, window or 1
        # The copy whose window ends at a layer began `copies` - 1 layers before it, or at the first layer.
        self.of_layer = [max(0, layer - self.copies + 1) % self.copies for layer in range(layers)]
        self.trunks = list(zip(*items, strict=True))  # [trunks][items]
        self.openings = [Openings(model, [beginning(own).tolist() for own in trunks], last) for trunks in self.trunks]

    def sizes(self) -> list[int]:
        """How many tokens each item adds to a forward pass."""
        of_trunks = [
            [Outline(own, len(known), self.window).size for own, known in zip(trunks, openings.known, strict=True)]
            for openings, trunks in zip(self.openings, self.trunks, strict=True)
        ]
        return [max(sizes) for sizes in zip(*of_trunks, strict=True)]

    def forwards(self, batch: list[int]) -> Iterator[Forward]:
        """A forward pass for each trunk of some items. Trees are grown now, while a GPU runs the batch before."""
        for openings, trunks in zip(self.openings, self.trunks, strict=True):
            mine = [trunks[index] for index in batch]
            trees = [grow_tree(trunks[index], openings.known[index], self.window) for index in batch]
            pack = Pack(trees, len(openings.past))
            branches = range(1, 1 + len(mine[0]) * self.copies)
            yield Forward(
                run=partial(run_decoder, self.model, pack, openings.past),
                places=[self._places(pack, mine, copy) for copy in range(self.copies)],
                of_layer=self.of_layer,
                back=[pack.with_trunk_places(branches[copy :: self.copies]) for copy in range(self.window or 0)],
            )

    def _places(self, pack: Pack, trunks: list[Trunk], copy: int) -> Places:
        return [
            [
                place
                for number, variant in enumerate(own)
                for place in pack.places(tree, 1 + number * self.copies + copy, variant.read)
            ]
            for tree, own in enumerate(trunks)
        ]


class Outline:
    """A tree as far as its size goes: where its trunk begins and ends, and where each variant leaves it."""

    def __init__(self, variants: Trunk, known: int, copies: int | None = None):
        """So many of the trunk's first tokens are known. For `copies`, see `grow_tree`."""
        ids = variants[0].ids
        self.forks = [variant.fork(ids) for variant in variants]
        self.end = len(ids) if copies else max(self.forks)
        self.start = min(known, self.end, *(self.forks if copies else ()))
        after = (len(own.ids) - fork - len(set(own.cut)) for own, fork in zip(variants, self.forks, strict=True))
        self.size = self.end - self.start + (copies or 1) * sum(after)


def grow_tree(variants: Trunk, known: np.ndarray, copies: int | None = None) -> Tree:
    """Variants as a tree: the first one's tokens are the trunk, as far as any needs them, and each is a branch of it.

    `known` are the pool places of the trunk's first tokens.

    A cut token is hidden, in every layer, from every later token that is not cut itself. So what is read depends on no
    cut token at all, and a branch leaves them out: from its fork on it has the tokens that are not cut, at their own
    positions. A variant that differs from the trunk in nothing is a branch without tokens.

    With `copies`, each variant has that many branches, and the trunk begins before all of them and goes on to its end.
    """
    outline = Outline(variants, len(known), copies)
    tree = trunk(known[: outline.start], variants[0].ids[outline.start : outline.end])
    for variant, fork in zip(variants, outline.forks, strict=True):
        left = np.arange(len(variant.ids)) >= fork
        left[variant.cut] = False
        positions = left.nonzero()[0]
        tree.branches.extend([Branch(variant.ids[positions], positions, fork, variant.bias)] * (copies or 1))
    return tree
