"""From a decoder's states to logits, by the model's own code."""

from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from anchorscope.engine.batches import out_of_memory
from anchorscope.engine.parts import decoder_of, input_device
from anchorscope.engine.scores import own_attention
from anchorscope.engine.self_check import Path

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


def find_head(path: Path, model: PreTrainedModel, ids: list[int]) -> Head | None:
    """The model's head, tried on one sequence; None where its own code wants more than the decoder's states."""
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
