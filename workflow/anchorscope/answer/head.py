"""From a decoder's states to logits, by the model's own code."""

from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from anchorscope.engine.batches import out_of_memory
from anchorscope.engine.parts import decoder_of, input_device
from anchorscope.engine.scores import own_attention
from anchorscope.engine.self_check import Path, choose_path

TRIED = 8  # tokens


class Head:
    """What a model's own code makes of its decoder's states.

    For some models that is more than a product with the output embeddings: a cap, or a scale.
    """

    def __init__(self, model: PreTrainedModel, output: type):
        self.model, self.output = model, output  # the kind of output that the decoder gives

    def __call__(self, states: Tensor) -> Tensor:
        """Logits [rows, vocabulary] of states [rows, width]."""
        decoder: Any = decoder_of(self.model)
        own = vars(decoder).get("forward")  # a model on several cards has one
        decoder.forward = lambda *args, **others: self.output(last_hidden_state=states[None])
        try:
            tokens = torch.zeros(1, len(states), dtype=torch.int64, device=input_device(self.model))
            return self.model(input_ids=tokens, use_cache=False).logits[0]
        finally:
            del decoder.forward
            if own is not None:
                decoder.forward = own


def choose_way(model: PreTrainedModel, ids: list[int], shared: int) -> tuple[Path, Head | None]:
    """The path on which the model's logits are computed, found by trying one sequence, and for packs its head."""
    return way_on(choose_path(model, ids, shared), model, ids)


def way_on(path: Path, model: PreTrainedModel, ids: list[int]) -> tuple[Path, Head | None]:
    """The same for a path that was found before."""
    head = _head_of(path, model, ids) if path.name == "packed" else None
    if path.name == "packed" and head is None:
        path = path.plain("their own code does not take the decoder's states alone")
    return path, head


def _head_of(path: Path, model: PreTrainedModel, ids: list[int]) -> Head | None:
    """The model's head; None where its own code wants more than the decoder's states."""
    tokens = torch.tensor([ids[-TRIED:]], device=input_device(model))
    with own_attention(model, "eager"):
        whole = model(input_ids=tokens, use_cache=False).logits[0]
        output = decoder_of(model)(input_ids=tokens, use_cache=False)
        head = Head(model, type(output))
        try:
            found = head(output.last_hidden_state[0])
        except (RuntimeError, TypeError, ValueError, AttributeError) as error:
            if out_of_memory(error):
                raise
            return None
    return head if found.shape == whole.shape and path.same(found, whole) else None
