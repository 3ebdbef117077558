"""The engine's door: others say what is read of which sequences, and here it is decided how it is computed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from anchorscope.engine.attention_mask import own_attention
from anchorscope.engine.batches import run_batches
from anchorscope.engine.continuing import Continuing, Head, find_head
from anchorscope.engine.gradients import ready
from anchorscope.engine.packs import Packs
from anchorscope.engine.parts import check_components, find_parts, in_use
from anchorscope.engine.passes import Recorder, Rows
from anchorscope.engine.self_check import EnginePath, choose_path, relative_difference, shortest_window
from anchorscope.engine.work import Item, Prompts, Route, Said, Verdicts, Work, beginning, shared_tokens

# As many tokens per batch as keep a device busy. More are hardly faster and take more memory.
GPU_TOKENS, CPU_TOKENS = 16384, 2048
# What is kept of a batch of examples of mean length. At most four batches are on their way from the device to the file,
# and memory for them comes in powers of two: so even batches of the shortest examples fit into a gigabyte each.
KEPT_BYTES = 5 * 2**27


@dataclass(frozen=True)
class Tried:
    """How a model is run, and what that was found out with."""

    path: EnginePath
    longest: int  # tokens of the sequence that was tried
    about: tuple  # what the model was like then


class Engine:
    """One model, which is tried out once and then runs whatever is described to it.

    Results are handed to a function `take`, batch by batch, after the numbers of their items. `what` names the work
    where its progress is shown.
    """

    def __init__(self, model: PreTrainedModel, batch_tokens: int | None = None, tried: Tried | None = None):
        """`batch_tokens` are computed together, by default as many as suit the device."""
        self.model, self.tried = model, tried
        self.head: Head | None = None
        self.head_of: Tried | None = None  # with which of the trials it was found
        self.batch_tokens = batch_tokens or (GPU_TOKENS if model.device.type == "cuda" else CPU_TOKENS)
        self.as_suits = batch_tokens is None
        config = model.config.get_text_config()
        self.layers, self.width = config.num_hidden_layers, config.hidden_size

    def how(self) -> dict | None:
        """How the model is run, for what is made from it; None before it was tried."""
        return self.tried.path.as_json() if self.tried else None

    @torch.inference_mode()
    def prepare(self, work: Work) -> EnginePath | None:
        """Find out how a work is run; None where there is nothing to run. Refuses what cannot be, in one sentence."""
        if not work.items:
            return None
        with in_use(self.model):
            path = self._path_for(work.items)
            check_components(path.parts, work.components, path.kind)
            return self._windowed(path, work) if work.window and path.name == "packed" else path

    @torch.inference_mode()
    def states(
        self,
        work: Work,
        take: Callable[[list[int], list[Tensor]], None],
        what: str | None = None,
        path: EnginePath | None = None,
    ) -> None:
        """Vectors [components, layers, vectors, width], a block for each device; their layers follow one another.

        The vectors of the first trunk stand before those of the next. `path` is what `prepare` found, if it was asked.
        """
        path = path or self.prepare(work)
        if path is None:
            return
        with in_use(self.model), path.running(self.model), Recorder(path.parts, work) as recorder:
            window = None if work.window is None else min(work.window, self.layers)
            lowered: Packs | Rows = (
                Packs(self.model, work.items, self.layers, window, recorder.last)
                if path.name == "packed"
                else Rows(self.model, path.parts, work.items, window)
            )

            def run(batch: list[int]) -> None:
                take(batch, recorder.blocks(list(lowered.forwards(batch)), self.width, self.model.dtype))

            sizes = lowered.sizes()
            run_batches(run, sizes, self._budget(work, sizes), what)

    @torch.inference_mode()
    def states_alone(self, work: Work, take: Callable[[list[int], list[Tensor]], None]) -> None:
        """The same for a few items in which nothing is cut, each by itself in the model's own code.

        Nothing is padded, shared or hidden, so nothing has to be tried before.
        """
        check_length(len(_longest(work.items)), self.model.config)
        with in_use(self.model):
            parts = find_parts(self.model)
            check_components(parts, work.components, self.model.config.get_text_config().model_type)
            rows = Rows(self.model, parts, work.items)
            with Recorder(parts, work) as recorder:
                for index in range(len(work.items)):
                    take([index], recorder.blocks(list(rows.forwards([index])), self.width, self.model.dtype))

    @torch.inference_mode()
    def logits(self, items: Sequence[Item], take: Callable[[list[int], Tensor], None], what: str) -> None:
        """Logits [tokens that are read, items, vocabulary] of items of one trunk."""
        if not items:
            return
        with in_use(self.model):
            path, head = self._with_head(self._path_for(items), _longest(items))
            with path.running(self.model):
                lowered: Packs | Rows = (
                    Packs(self.model, items, layers=1) if head else Rows(self.model, path.parts, items, head=True)
                )

                def run(batch: list[int]) -> None:
                    (forward,) = lowered.forwards(batch)
                    given = forward.run()
                    places = torch.tensor(forward.places[0], device=given.device).T
                    read = given[places.flatten()]
                    take(batch, (head(read) if head else read).unflatten(0, places.shape))

                run_batches(run, lowered.sizes(), self.batch_tokens, what)

    @torch.inference_mode()
    def continued(self, work: Prompts, what: str) -> list[list[Said]]:
        """Every continuation of every prompt."""
        found: list[list[Said]] = [[] for _ in work.prompts]
        if not found:
            return found
        longest = max(work.prompts, key=len)
        with in_use(self.model):
            path = self._path(longest, lambda: [prompt[:-1] for prompt in work.prompts], more=work.max_new_tokens)
            path, head = self._with_head(path, longest)
            with path.running(self.model):
                continuing = Continuing(self.model, head, work)

                def run(batch: list[int]) -> None:
                    for index, said in zip(batch, continuing.run(batch), strict=True):
                        found[index] = said

                run_batches(run, continuing.sizes(self.batch_tokens), self.batch_tokens, what)
        return found

    def flows(self, routes: list[Route], verdicts: Verdicts, component: str, what: str) -> Tensor:
        """How much of the probes' verdicts flows along each route, [layers, flows, routes]."""
        found = torch.empty(len(verdicts.layers), len(routes[0].keys), len(routes))
        with in_use(self.model), own_attention(self.model, "eager"), torch.no_grad():
            gradients = ready(self.model, find_parts(self.model), routes, verdicts, component)

            def run(batch: list[int]) -> None:
                found[:, :, batch], _ = gradients.run([routes[index] for index in batch], verdicts.of(batch))

            # Routes whose queries start at about the same place share a batch.
            longest = max(len(route.ids) - route.start for route in routes)
            run_batches(run, [route.start + longest for route in routes], self.batch_tokens, what)
        return found

    def _path_for(self, items: Sequence[Item]) -> EnginePath:
        return self._path(_longest(items), lambda: [beginning(item[0]).tolist() for item in items])

    def _path(self, longest: list[int], begun: Callable[[], list[list[int]]], more: int = 0) -> EnginePath:
        """How the model is run, found by trying its longest sequence, behind which `more` tokens will stand.

        `begun` gives the beginnings of all sequences, which only a trial needs.
        It is tried again where the model has moved or computes otherwise, and where a sequence is longer than a layer's
        window that the one before did not fill.
        """
        check_length(len(longest) + more, self.model.config)
        about = (self.model.dtype, self.model.device, self.model.config._attn_implementation)
        tried, window = self.tried, shortest_window(self.model.config)
        if tried is None or tried.about != about or len(longest) > max(tried.longest, window):
            tried = Tried(choose_path(self.model, longest, shared_tokens(begun())), len(longest), about)
            self.tried = tried
        return tried.path

    def _with_head(self, path: EnginePath, ids: list[int]) -> tuple[EnginePath, Head | None]:
        """The path on which logits are computed, and for packs the model's head, tried on one sequence."""
        if path.name != "packed":
            return path, None
        if self.head_of is not self.tried:
            self.head, self.head_of = find_head(path, self.model, ids), self.tried
        if self.head is None:
            path = path.plain("their own code does not take the decoder's states alone")
        return path, self.head

    def _windowed(self, path: EnginePath, work: Work) -> EnginePath:
        """The path of a work with a window: packed only where that gives what plain batches give of one item."""
        longest = max(work.items, key=lambda item: len(item[0][0].ids))
        trial = replace(work, items=[longest], components=["resid"])
        found: list[list[Tensor]] = []
        for way in (path, path.plain()):
            self.states(trial, lambda batch, blocks: found.append(blocks), path=way)
        packed, plain = (torch.cat([block[0].flatten(1).float().cpu() for block in blocks]) for blocks in found)
        if path.same(packed, plain):
            return path
        difference = relative_difference(packed, plain, self.model.dtype)
        return path.plain(f"layers reuse what others computed before the window (difference {difference:.2g})")

    def _budget(self, work: Work, sizes: list[int]) -> int:
        """Tokens per batch: by default, fewer where the vectors kept of so many items would fill the memory."""
        if not self.as_suits:
            return self.batch_tokens
        read = sum(len(variant.read) for item in work.items for trunk in item for variant in trunk)
        kept = read * len(work.components) * len(work.layers) * self.width * self.model.dtype.itemsize
        return min(self.batch_tokens, max(1, int(KEPT_BYTES / kept * sum(sizes))))


def check_length(tokens: int, config: PreTrainedConfig) -> None:
    """Refuse sequences longer than the model's positions, if it has a limit: what it says there means nothing."""
    positions = getattr(config.get_text_config(), "max_position_embeddings", None)
    if positions and tokens > positions:
        raise ValueError(
            f"The longest prompt with its answer has {tokens} tokens, more than the model's {positions} positions "
            "(max_position_embeddings); take long questions out of the dataset."
        )


def _longest(items: Sequence[Item]) -> list[int]:
    longest: np.ndarray = max((variant.ids for item in items for trunk in item for variant in trunk), key=len)
    return longest.tolist()
