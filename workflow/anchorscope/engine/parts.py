"""Where a model's blocks, their attention and their MLPs are: found by watching a short pass, not by name."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from anchorscope.engine.attention_mask import AttentionScores, own_attention

TRIAL = 11  # tokens: a number that models have of nothing else
LISTED = 6  # layers in a message


@dataclass(frozen=True)
class Block:
    """One layer, and its parts; None where it has no such part."""

    module: nn.Module
    attention: nn.Module | None  # the child in which tokens attend to one another
    attention_out: nn.Module | None  # the matrix that leads from there back to the residual stream
    mlp: nn.Module | None


@dataclass(frozen=True)
class Parts:
    """The blocks of a model, in the order in which they run."""

    blocks: list[Block]
    stream: int | None = None  # where blocks hand on several residual streams, which is read; None: their mean

    @property
    def without_attention(self) -> list[int]:
        """The layers in which there is no attention to cut."""
        return [layer for layer, block in enumerate(self.blocks) if block.attention is None]

    def states(self, output: Any) -> Tensor:
        """The states [rows, tokens, width], or [tokens, width], among what a part returns."""
        states = cast(Tensor, first_tensor(output))
        if states.dim() < 4:
            return states
        return states.mean(dim=2) if self.stream is None else states[self.stream]

    def by_row(self, output: Any) -> Tensor:
        """All that a block hands on, as a view whose first axis is the rows."""
        states = cast(Tensor, first_tensor(output))
        return states if states.dim() < 4 or self.stream is None else states.transpose(0, 1)


# Which part of a block each component is the output of; None where a block has no such part.
MODULES: dict[str, Callable[[Block], Any]] = {
    "resid": lambda block: block.module,
    "attn": lambda block: block.attention_out,
    "mlp": lambda block: block.mlp,
}


def check_components(parts: Parts, components: Sequence[str], kind: str) -> None:
    """Refuse a component that some layer does not have."""
    for name in components:
        lacking = [layer for layer, block in enumerate(parts.blocks) if MODULES[name](block) is None]
        if lacking:
            raise ValueError(
                f"{kind} models have no {name} in {layers_listed(lacking)}; leave it out of `components`, and name "
                "another as the headline's `component`."
            )


def layers_listed(numbers: list[int]) -> str:
    more = f" and {len(numbers) - LISTED} more" if len(numbers) > LISTED else ""
    return f"layer{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers[:LISTED]))}{more}"


def decoder_of(model: PreTrainedModel) -> PreTrainedModel:
    """The part of a model that turns token ids into hidden states; of a multimodal model, its text model."""
    found = model.get_decoder()
    return found if isinstance(found, PreTrainedModel) else cast(PreTrainedModel, model.base_model)


def input_device(model: PreTrainedModel) -> torch.device:
    return cast(Tensor, model.get_input_embeddings().weight).device


class _Ended(Exception):
    """A forward pass has come as far as it should."""


@contextmanager
def ending_after(module: nn.Module | None) -> Iterator[None]:
    """End a forward pass, and with it the block, once a module has run: what comes later does not change its output.

    Hooks that the module had before are called first. With None the pass goes on to its end.
    """

    def end(module: nn.Module, args: Any, output: Any) -> None:
        raise _Ended

    with nullcontext() if module is None else module.register_forward_hook(end), suppress(_Ended):
        yield


@contextmanager
def hooked(handles: Iterable[RemovableHandle]) -> Iterator[None]:
    """Keep hooks for as long as the block runs."""
    with ExitStack() as stack:
        for handle in handles:
            stack.enter_context(handle)
        yield


@contextmanager
def swapped(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Give an object another attribute while the block runs, and then what it had of its own, if anything."""
    own = dict(vars(owner))
    setattr(owner, name, value)
    try:
        yield
    finally:
        delattr(owner, name)
        if name in own:
            setattr(owner, name, own[name])


@contextmanager
def in_use(model: PreTrainedModel) -> Iterator[None]:
    """Switch off what is done in training only, while the block runs.

    And cuDNN's attention, which GPUs that have it take first: it makes a plan for every shape of a batch, and that
    takes longer than all the batch.
    """
    was_training, took_cudnn = model.training, torch.backends.cuda.cudnn_sdp_enabled()
    model.eval()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        model.train(was_training)
        torch.backends.cuda.enable_cudnn_sdp(took_cudnn)


def first_tensor(output: Any) -> Tensor | None:
    if isinstance(output, tuple | list):
        return first_tensor(output[0]) if output else None
    return output if isinstance(output, Tensor) else None


@dataclass
class _Seen:
    """What happened in a pass."""

    ended: list[tuple[nn.Module, Any]] = field(default_factory=list)  # modules with their outputs, in order
    running: list[nn.Module] = field(default_factory=list)
    attended: list[tuple[int, set[nn.Module]]] = field(default_factory=list)  # how many had ended, and which ran
    given: dict[nn.Module, int] = field(default_factory=dict)  # how many states each module was given


@torch.inference_mode()
def find_parts(model: PreTrainedModel) -> Parts:
    """Run a few tokens through the model and see what its parts are."""
    config = model.config.get_text_config()
    kind, width, count = config.model_type, config.hidden_size, config.num_hidden_layers
    seen = _watch(model)
    attending = {module for _, around in seen.attended for module in around}
    lists = [some for some in decoder_of(model).modules() if isinstance(some, nn.ModuleList)]
    blocks = next(
        (list(some) for some in lists if len(some) == count and _are_blocks(some, seen, attending, width)), None
    )
    if blocks is None:
        why = _why_no_blocks(lists, seen, attending, count=count, width=width)
        raise ValueError(f"This {kind} model cannot be measured: {why}.")
    mlp = _mlp_name(blocks, seen, attending, width=width)
    found = [_block(module, seen, attending, width=width, mlp=mlp) for module in blocks]
    return Parts(found, getattr(config, "altup_active_idx", None))


def _watch(model: PreTrainedModel) -> _Seen:
    seen, decoder = _Seen(), decoder_of(model)

    def begin(module: nn.Module, args: tuple, kwargs: dict) -> None:
        seen.running.append(module)
        given = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
        seen.given[module] = sum(value.dim() == 3 and value.shape[1] == TRIAL for value in given)

    def end(module: nn.Module, args: tuple, output: Any) -> None:
        seen.running.pop()
        seen.ended.append((module, output))

    def met(func: Any, made: Tensor) -> None:
        seen.attended.append((len(seen.ended), set(seen.running)))

    modules = list(decoder.modules())
    before = [module.register_forward_pre_hook(begin, with_kwargs=True) for module in modules]
    after = [module.register_forward_hook(end) for module in modules]
    with own_attention(model, "eager"), hooked(before + after), AttentionScores(rows=1, queries=TRIAL, met=met):
        tokens = torch.arange(TRIAL, device=input_device(model)) % model.config.get_text_config().vocab_size
        decoder(input_ids=tokens[None], use_cache=False)
    return seen


def _are_blocks(some: nn.ModuleList, seen: _Seen, attending: set[nn.Module], width: int) -> bool:
    """Whether these modules ran once each and gave states, some of them with attention in a child."""
    attends = any(child in attending for module in some for child in module.children())
    gave = Counter(module for module, output in seen.ended if _are_states(output, width))
    ran = Counter(module for module, _ in seen.ended)
    return attends and all(ran[module] == gave[module] == 1 for module in some)


def _why_no_blocks(lists: list[nn.ModuleList], seen: _Seen, attending: set[nn.Module], count: int, width: int) -> str:
    """What a model has in place of blocks."""
    ran, outputs = Counter(module for module, _ in seen.ended), dict(seen.ended)
    for some in lists:
        if any(ran[module] > 1 for module in some if module in attending):
            return "its layers run several times each, so that no state is that of one layer"
        handed = first_tensor(outputs.get(some[0])) if len(some) == count else None
        if handed is not None and handed.dim() == 3 and handed.shape[1] > TRIAL and handed.shape[2] == width:
            return f"its layers hand on {handed.shape[1]} states for a text of {TRIAL} tokens"
    if not attending:
        return "no attention was found in it that could be cut"
    return f"its code has no {count} modules, one for each layer, that run once and hand on states of width {width}"


def _are_states(output: Any, width: int) -> bool:
    """Whether these are the states of the trial's tokens: [1, tokens, width], or several streams of them.

    Streams come first, [streams, 1, tokens, width], or last, [1, tokens, streams, width].
    """
    states = first_tensor(output)
    if states is None or states.dim() not in (3, 4):
        return False
    shape = tuple(states.shape)
    return shape[-3:] == (1, TRIAL, width) or (*shape[:2], shape[-1]) == (1, TRIAL, width)


def _is_wide(output: Any, width: int) -> bool:
    """Whether these are the states of the trial's tokens, in whatever shape."""
    states = first_tensor(output)
    return states is not None and states.shape[-1] == width and states.numel() == TRIAL * width


def _has_matrix(module: nn.Module) -> bool:
    return any(weight.dim() > 1 for weight in (*module.parameters(), *module.buffers()))


def _mlp_name(blocks: list[nn.Module], seen: _Seen, attending: set[nn.Module], width: int) -> str | None:
    """What blocks with attention call the child that holds most of their other weights."""
    outputs = dict(seen.ended)
    names: Counter[str] = Counter()
    for block in blocks:
        sizes = {
            name: sum(weight.numel() for weight in child.parameters())
            for name, child in block.named_children()
            if child not in attending and _has_matrix(child) and _is_wide(outputs.get(child), width)
        }
        if sizes and block in attending:
            names[max(sizes, key=lambda name: sizes[name])] += 1
    return names.most_common(1)[0][0] if names else None


def _block(block: nn.Module, seen: _Seen, attending: set[nn.Module], width: int, mlp: str | None) -> Block:
    attention = next((child for child in block.children() if child in attending), None)
    found = getattr(block, mlp, None) if mlp else None
    if found is not None and seen.given.get(found, 0) > 1:  # it is also given the residual stream, and adds it
        found = _last_matrix(found, seen.ended, width)
    start = next((ended for ended, around in seen.attended if attention in around), 0)
    out = None if attention is None else _last_matrix(attention, seen.ended[start:], width)
    return Block(block, attention, out, found)


def _last_matrix(module: nn.Module, ended: list[tuple[nn.Module, Any]], width: int) -> nn.Module | None:
    leaves = {part for part in module.modules() if not list(part.children()) and _has_matrix(part)}
    fitting = [part for part, output in ended if part in leaves and _is_wide(output, width)]
    return fitting[-1] if fitting else None
