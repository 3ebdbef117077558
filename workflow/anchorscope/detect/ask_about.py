"""What a model says of its own answers: whether each is true, and how sure it is."""

from collections.abc import Callable
from functools import partial
from itertools import chain

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from anchorscope.answer.head import Head, way_on
from anchorscope.answer.prompts import check_length
from anchorscope.detect.about_prompts import Asking
from anchorscope.engine.attention import run_decoder
from anchorscope.engine.batches import default_tokens, run_batches
from anchorscope.engine.openings import Openings
from anchorscope.engine.packing import Branch, Pack, Tree, shared_tokens, to_device, trunk
from anchorscope.engine.parts import input_device
from anchorscope.engine.self_check import Path, choose_path, shortest_window


@torch.inference_mode()
def ask_about(
    model: PreTrainedModel, askings: list[Asking], batch_tokens: int | None, path: Path | None = None
) -> list[Tensor]:
    """The logits [examples, options] of what the model would say, for each asking.

    The askings of an example share its question and answer, and all examples what comes before, where the prompts do.
    `path` says how the model is run, if that was tried out before. It is tried again where a layer's window is shorter
    than a prompt, because the earlier sequences may have been shorter.
    """
    examples = [list(some) for some in zip(*(asking.sequences for asking in askings), strict=True)]
    found = [torch.empty(len(examples), len(asking.options)) for asking in askings]
    if not examples:
        return found
    every = [*chain.from_iterable(examples)]
    longest, shared = max(every, key=len), _shared(every)
    check_length(len(longest), model.config)
    if path is None or len(longest) > shortest_window(model.config):
        path = choose_path(model, longest, shared)
    path, head = way_on(path, model, longest)
    with path.running(model):
        run: Callable[[list[list[list[int]]]], Tensor]
        if head is None:
            run, sizes = partial(_plain, model), [sum(map(len, some)) for some in examples]
        else:
            openings = Openings(model, [some[0][: _shared(some)] for some in examples], prefix=shared)
            run = partial(_packed, model, head, openings)
            sizes = [_grown(some, openings).size for some in examples]

        def ask(batch: list[int]) -> None:
            logits = run([examples[index] for index in batch])  # [askings, examples, vocabulary]
            for asking, rows, own in zip(askings, found, logits, strict=True):
                rows[batch] = own[:, asking.options].float().cpu()

        run_batches(ask, sizes, batch_tokens or default_tokens(model), what="asking about answers")
    return found


def _shared(sequences: list[list[int]]) -> int:
    """How many leading tokens some sequences have in common; the last token of each is always its own."""
    return min(shared_tokens(sequences), min(map(len, sequences)) - 1)


def _grown(sequences: list[list[int]], openings: Openings) -> Tree:
    """An example's sequences as a tree: what they share is its trunk, and the rest of each a branch."""
    fork = _shared(sequences)
    known = openings.known(sequences[0][:fork])
    tree = trunk(known, sequences[0][len(known) : fork])
    for ids in sequences:
        tree.branches.append(Branch(np.array(ids[fork:]), np.arange(fork, len(ids)), fork))
    return tree


def _packed(model: PreTrainedModel, head: Head, openings: Openings, examples: list[list[list[int]]]) -> Tensor:
    """Logits [askings, examples, vocabulary] after the last token of each sequence."""
    pack = Pack([_grown(some, openings) for some in examples], len(openings.past))
    hidden = run_decoder(model, pack, openings.past)  # [tokens, width]
    last = [
        [start + len(branch.tokens) - 1 for start, branch in zip(starts[1:], tree.branches[1:], strict=True)]
        for starts, tree in zip(pack.starts[: len(examples)], pack.trees, strict=False)
    ]
    places = to_device(np.array(last).T.ravel(), hidden.device)
    return head(hidden[places]).unflatten(0, (len(last[0]), len(examples)))


def _plain(model: PreTrainedModel, examples: list[list[list[int]]]) -> Tensor:
    """The same by the model's own code, on whole sequences, padded on the right, where none of their tokens sees it."""
    rows = [ids for some in zip(*examples, strict=True) for ids in some]  # by asking
    length = max(map(len, rows))
    tokens = torch.tensor([ids + ids[-1:] * (length - len(ids)) for ids in rows], device=input_device(model))
    logits = model(input_ids=tokens, use_cache=False).logits  # [rows, length, vocabulary]
    last = torch.tensor([len(ids) - 1 for ids in rows], device=logits.device)
    return logits[torch.arange(len(rows), device=logits.device), last].unflatten(0, (len(examples[0]), len(examples)))
