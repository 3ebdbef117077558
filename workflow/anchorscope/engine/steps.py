"""The next token of many answers at once: on a GPU as a graph, which runs without waiting for the host.

Answers begin with a prefix that all of them have. Their own tokens, which follow it, are kept in slots: a row for each
answer, and as many places in every row. So the steps of a batch have one shape. Rows of answers that have ended are
computed along, until the others fit into fewer.
"""

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel

from anchorscope.engine.attention_mask import attending_by
from anchorscope.engine.batches import out_of_memory
from anchorscope.engine.fused import HAS_TRITON
from anchorscope.engine.packing import Ragged, to_device
from anchorscope.engine.packs import Past, takes_ragged
from anchorscope.engine.parts import decoder_of, input_device
from anchorscope.files.logs import log

if HAS_TRITON:
    from anchorscope.engine.kernels import attend_ragged

NAME = "anchorscope_steps"
GROWTH = 8  # places for new tokens, at least, when slots are laid out; most answers need no more
STRETCH = 256  # tokens of the vocabulary whose chances are added up at once
FINEST = 8  # rows of a graph come in multiples of this, or of a larger power of two
# Of the memory that weights leave on a GPU: a batch's slots, and those kept with their graphs for later ones.
SLOT_SHARE = 0.3

Head = Callable[[Tensor], Tensor]  # logits [rows, vocabulary] of a decoder's states [rows, width]
ByLayer = dict[int, tuple[Tensor, Tensor]]  # keys and values by layer
Arrive = Callable[[], list[np.ndarray]]  # waits for what is on its way to the host


class Chosen(NamedTuple):
    """Tokens of several answers with what `Said` has of each; all of one shape."""

    ids: Tensor
    logprobs: Tensor
    entropies: Tensor

    def arriving(self) -> Arrive:
        """Begin to copy it to the host. Who waits for that does not wait for what is computed afterwards."""
        on_the_way = self.ids.is_cuda
        copies = [part.to("cpu", non_blocking=on_the_way) for part in self]  # into pinned memory
        copied = torch.cuda.current_stream(self.ids.device).record_event() if on_the_way else None

        def arrive() -> list[np.ndarray]:
            if copied:
                copied.synchronize()
            return [copy.numpy() for copy in copies]

        return arrive


def choose_tokens(logits: Tensor, uniform: Tensor | None) -> Chosen:
    """The likeliest tokens by logits [rows, vocabulary]; with uniform numbers [rows], tokens drawn at temperature 1."""
    chances = logits.float().softmax(dim=-1)
    ids = logits.argmax(dim=-1) if uniform is None else _drawn(chances, uniform)
    return Chosen(ids, chances.gather(1, ids[:, None])[:, 0].log(), torch.special.entr(chances).sum(dim=-1))


def _drawn(chances: Tensor, uniform: Tensor) -> Tensor:
    """The first token of each row whose chance and those before it come to more than `uniform` of all.

    First the stretch of the vocabulary that it is in is found, so that not every chance is added to all before it. In
    float64, because a sum over a large vocabulary would lose the smallest ones.
    """
    vocabulary = chances.shape[1]
    stretches = F.pad(chances, (0, -vocabulary % STRETCH)).unflatten(1, (-1, STRETCH))  # [rows, stretches, tokens]
    sums = stretches.sum(dim=2, dtype=torch.float64)
    reached = sums.cumsum(dim=1)
    wanted = (uniform.to(reached.device) * reached[:, -1])[:, None]
    stretch = torch.searchsorted(reached, wanted, right=True).clamp(max=sums.shape[1] - 1)
    within = stretches.take_along_dim(stretch[:, :, None], dim=1)[:, 0].double().cumsum(dim=1)
    left = wanted - (reached - sums).gather(1, stretch)
    place = torch.searchsorted(within, left, right=True).clamp(max=STRETCH - 1)
    return (stretch * STRETCH + place)[:, 0].clamp(max=vocabulary - 1)


class Slots:
    """Keys and values that answers attend to: those of the prefix, [heads, prefix, width], and each one's own.

    Scores are computed in float32. Keys are kept in it, too, where no kernel does that.
    """

    def __init__(self, shared: ByLayer, rows: int, room: int):
        self.shared, self.room = shared, room
        self.own: ByLayer = {  # [rows, heads, room, width]
            layer: cast(tuple[Tensor, Tensor], tuple(_zeros(states, rows, room) for states in both))
            for layer, both in shared.items()
        }
        first = next(iter(shared.values()))[0]
        self.prefix = first.shape[1]
        self.lengths = torch.zeros(rows, dtype=torch.int64, device=first.device)  # places that are taken in each row
        self.positions = torch.arange(self.prefix + room, device=first.device)
        places = torch.arange(rows * room, device=first.device)
        # Each row is a sequence of one query.
        starts = room * places[:rows]
        self.ragged = Ragged(places, places[: rows + 1], starts, key_counts=self.lengths, most_queries=1)
        self.seen: dict[int | None, Tensor] = {}

    def begin_step(self) -> None:
        """Each answer has one more token from now on."""
        self.seen.clear()
        self.ragged = self.ragged._replace(key_counts=self.lengths + 1)

    @property
    def size(self) -> int:
        """Bytes of the answers' own keys and values."""
        return sum(states.nbytes for both in self.own.values() for states in both)

    def fill(self, past: Past, places: np.ndarray, lengths: np.ndarray) -> None:
        """Copy the answers' own tokens from their places [answers, tokens] in the pools; so many of each count."""
        flat = to_device(places.ravel(), self.lengths.device)
        for layer, pools in past.pools.items():
            for own, pool in zip(self.own[layer], pools, strict=True):
                states = pool.index_select(0, flat.to(pool.device)).unflatten(0, places.shape)
                own[: places.shape[0], :, : places.shape[1]] = states.transpose(1, 2)
        self._have(to_device(lengths, self.lengths.device))

    def take(self, other: "Slots", rows: Tensor) -> None:
        """Copy some rows of other slots, which have no more room than these."""
        for layer, both in other.own.items():
            for own, old in zip(self.own[layer], both, strict=True):
                own[: len(rows), :, : other.room] = old.index_select(0, rows.to(old.device))
        self._have(other.lengths[rows])

    def _have(self, lengths: Tensor) -> None:
        self.lengths.zero_()
        self.lengths[: len(lengths)] = lengths

    def attend(
        self, layer: int, states: list[Tensor], scaling: float, sliding: int | None, softcap: float | None
    ) -> Tensor:
        """Attention of one token of each row, from then on among its own.

        `states` are queries, keys and values, [rows, heads, width], and so is what is returned.
        """
        query, key, value = states
        (shared_keys, shared_values), (keys, values) = self.shared[layer], self.own[layer]
        at = torch.arange(len(key), device=key.device), slice(None), self.lengths.to(key.device)
        keys[at], values[at] = key.to(keys.dtype), value
        if takes_ragged(query, keys, values):
            keys, values = (states.transpose(1, 2).flatten(0, 1) for states in (keys, values))  # as they are in memory
            prefix = shared_keys.transpose(0, 1), shared_values.transpose(0, 1)
            return attend_ragged(query, keys, values, self.ragged.to(key.device), scaling, prefix, softcap, sliding)
        query = query.unflatten(1, (key.shape[1], -1)).float() * scaling  # [rows, heads of keys, sharers, width]
        to_shared = torch.einsum("rhgd,hpd->rhgp", query, shared_keys)
        scores = torch.cat([to_shared, torch.einsum("rhgd,rhpd->rhgp", query, keys)], dim=-1)
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        scores = scores.masked_fill(~self._seen_within(sliding).to(scores.device), -torch.inf)
        shared, own = scores.softmax(dim=-1).to(value.dtype).split([self.prefix, self.room], dim=-1)
        out = torch.einsum("rhgp,hpd->rhgd", shared, shared_values) + torch.einsum("rhgp,rhpd->rhgd", own, values)
        return out.flatten(1, 2).contiguous()  # as of any other attention: some models take views of it

    def _seen_within(self, sliding: int | None) -> Tensor:
        """Which positions each row sees, [rows, 1, 1, positions]: up to its new token. Layers that agree share it."""
        if sliding not in self.seen:
            new = (self.prefix + self.lengths)[:, None]
            seen = self.positions <= new
            if sliding is not None:
                seen &= new - self.positions < sliding
            self.seen[sliding] = seen[:, None, None]
        return self.seen[sliding]


def _zeros(states: Tensor, rows: int, room: int) -> Tensor:
    """Places [rows, heads, room, width]; for the kernel, a place's heads are next to one another in memory."""
    heads, _, width = states.shape
    if takes_ragged(states):
        return states.new_zeros(rows, room, heads, width).transpose(1, 2)
    return states.new_zeros(rows, heads, room, width)


def attend_to_slots(
    module: nn.Module,
    query: Tensor,  # [1, heads, rows, head_width]
    key: Tensor,  # [1, key_value_heads, rows, head_width]
    value: Tensor,
    attention_mask: None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    *,
    slots: Slots,
    **kwargs: object,
) -> tuple[Tensor, None]:
    """How a model attends in a step, [1, rows, heads, head_width]: its sequence is one token of each row."""
    states = [tensor.squeeze(0).transpose(0, 1) for tensor in (query, key, value)]
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return slots.attend(cast(int, module.layer_idx), states, scale, sliding_window, softcap)[None], None


AttentionInterface.register(NAME, attend_to_slots)


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


@contextmanager
def beside(device: torch.device) -> Iterator[None]:
    """Run on another stream, as graphs must be captured; always the same, as matrix libraries keep memory for each."""
    stream, here = _side_stream(device), torch.cuda.current_stream(device)
    stream.wait_stream(here)
    with torch.cuda.stream(stream):
        yield
    here.wait_stream(stream)


@contextmanager
def never_waiting() -> Iterator[None]:
    """While the block runs it is an error if the host waits for a number from the GPU.

    While a graph is captured, it would be an error after which torch gives no memory back as long as it runs.
    """
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that it does not notice all of it
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def room_for(tokens: int) -> int:
    """How many places a row has whose answer has so many tokens of its own."""
    return 1 << (tokens + GROWTH - 1).bit_length()


class Step:
    """One more token for every row of some slots."""

    def __init__(self, model: PreTrainedModel, head: Head, slots: Slots, draws: bool):
        self.model, self.head, self.slots = model, head, slots
        rows, device = len(slots.lengths), input_device(model)
        self.tokens = torch.zeros(rows, dtype=torch.int64, device=device)  # the last ones, which were not computed yet
        self.uniform = torch.zeros(rows, dtype=torch.float64, device=device) if draws else None
        self.chosen: Chosen | None = None  # where a graph leaves what it chose
        self.graph: torch.cuda.CUDAGraph | None = None

    def run(self) -> Chosen:
        """The tokens that come next."""
        if self.graph is None:
            self.chosen = self._compute()
        else:
            self.graph.replay()
        return cast(Chosen, self.chosen)

    def capture(self, pool: Any) -> None:
        """Make a graph of it. It has run before, beside other work, so that all that it needs is loaded."""
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        try:
            chosen = self._compute()
        finally:
            graph.capture_end()
        self.graph, self.chosen = graph, chosen

    def _compute(self) -> Chosen:
        slots = self.slots
        slots.begin_step()
        positions = (slots.prefix + slots.lengths).to(self.tokens.device)
        with attending_by(self.model, NAME):
            output = decoder_of(self.model)(
                input_ids=self.tokens[None], position_ids=positions[None], use_cache=False, slots=slots
            )
            chosen = choose_tokens(self.head(output.last_hidden_state[0]), self.uniform)
        slots.lengths += 1
        self.tokens.copy_(chosen.ids)
        return chosen


class Steps:
    """The steps of one batch of answers after another. Where one GPU has the model, they become graphs."""

    def __init__(self, model: PreTrainedModel, head: Head, draws: bool):
        self.model, self.head, self.draws = model, head, draws
        devices = {weight.device for weight in model.parameters()}
        self.graphs = len(devices) == 1 and next(iter(devices)).type == "cuda"
        self.most = int(SLOT_SHARE * _left(model)) if self.graphs else 0
        self.pool: Any = None
        self.kept: dict[tuple[int, int], Step] = {}  # by rows and room; what was used last stands last

    def places_for(self, past: Past) -> float:
        """For how many tokens of all answers together the slots of a batch have memory, by what one takes in a pool."""
        firsts = [(keys[:1], values[:1]) for keys, values in past.pools.values()]
        each = sum(_scored(keys, values).nbytes + values.nbytes for keys, values in firsts)
        return self.most / each if self.most and each else math.inf

    def begin(self, past: Past, prefix: int, places: np.ndarray, lengths: np.ndarray, tokens: Tensor) -> None:
        """Lay out answers: where their own tokens are in the pools, how many these are, and what comes next."""
        shared = {
            layer: (_scored(_first(keys, prefix), values), _first(values, prefix))
            for layer, (keys, values) in past.pools.items()
        }
        self.rows, self.taken = np.arange(len(places)), int(lengths.max())
        vars(self).pop("step", None)  # of the batch before, whose memory may be needed
        self.step = self._sized(shared)
        self.step.slots.fill(past, places, lengths)
        self.step.tokens[: len(tokens)] = tokens

    def next(self, going: np.ndarray, uniform: Tensor | None) -> Chosen:
        """The next tokens of the answers that go on, which are named by their places in the step before."""
        self.rows = self.rows[going]
        if self._fits_badly():
            self._move()
        step, rows = self.step, to_device(self.rows, self.step.tokens.device)
        if step.uniform is not None and uniform is not None:
            step.uniform[rows] = uniform.to(step.uniform)
        with beside(rows.device) if self.graphs else nullcontext():
            chosen = self._run(step)
        self.taken += 1
        return Chosen(*(part[rows.to(part.device)] for part in chosen))

    def forget(self) -> None:
        """Give all memory back."""
        self.kept.clear()
        vars(self).pop("step", None)

    def _padded(self) -> int:
        """How many rows a step has for those that go on. Graphs have four sizes between two powers of two."""
        count = len(self.rows)
        grain = max(FINEST, 1 << max(0, count.bit_length() - 3)) if self.graphs else 1
        return -(-count // grain) * grain

    def _sized(self, shared: ByLayer) -> Step:
        size = self._padded(), room_for(self.taken)
        step = self.kept.pop(size, None)
        if step is None:
            while sum(other.slots.size for other in self.kept.values()) > self.most:
                del self.kept[next(iter(self.kept))]
            step = Step(self.model, self.head, Slots(shared, *size), self.draws)
        if self.graphs:
            self.kept[size] = step
        return step

    def _fits_badly(self) -> bool:
        """Whether the slots are full, or so few rows go on that they would fit into half of a graph's."""
        rows = len(self.step.tokens)
        return self.taken == self.step.slots.room or self._padded() <= (rows // 2 if self.graphs else rows - 1)

    def _move(self) -> None:
        old, rows = self.step, to_device(self.rows, self.step.tokens.device)
        self.rows = np.arange(len(rows))
        self.step = self._sized(old.slots.shared)
        self.step.slots.take(old.slots, rows)
        self.step.tokens[: len(rows)] = old.tokens[rows]

    def _run(self, step: Step) -> Chosen:
        """The first time, what a step does is watched, and the second time it becomes a graph."""
        try:
            if self.graphs and step.chosen is None:
                with never_waiting():
                    return step.run()
            if self.graphs and step.graph is None:
                if not any(other.graph for other in self.kept.values()):
                    self.pool = torch.cuda.graph_pool_handle()  # one ends with the last of its graphs
                torch.cuda.empty_cache()  # a graph takes new memory, and meanwhile torch gives back none that is spare
                step.capture(self.pool)
        except RuntimeError as error:  # from code that waits for a number from the GPU
            if out_of_memory(error):
                raise
            log.info("answers are computed without graphs: %s", " ".join(str(error).split())[:200])
            self.graphs = False
            self.kept.clear()
        return step.run()


def _left(model: PreTrainedModel) -> int:
    """Bytes that a model's weights leave of what this process may fill on its GPU.

    The same in every run, because a plan depends on them.
    """
    weights = sum(weight.nbytes for weight in model.parameters())
    filled = torch.cuda.get_per_process_memory_fraction(model.device)
    return int(filled * torch.cuda.get_device_properties(model.device).total_memory) - weights


def _scored(keys: Tensor, values: Tensor) -> Tensor:
    """Keys as they are kept: in float32, in which scores are computed, unless a kernel does that."""
    return keys if takes_ragged(keys, values) else keys.float()


def _first(pool: Tensor, prefix: int) -> Tensor:
    """The prefix in a pool [tokens, heads, width], on its own: [heads, prefix, width]."""
    return pool[:prefix].transpose(0, 1).clone(memory_format=torch.contiguous_format)
