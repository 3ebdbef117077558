"""How the next token of an answer is chosen: the likeliest, or one drawn with the model's own probabilities."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class Chosen(NamedTuple):
    """Tokens of several answers with what `Said` has of each; all of one shape."""

    ids: Tensor
    logprobs: Tensor
    entropies: Tensor


class Choice(Protocol):
    """How the next tokens are chosen."""

    def __call__(self, logits: Tensor, answers: Sequence[int], step: int) -> Tensor:
        """The tokens [rows] that come next, of logits [rows, vocabulary].

        `answers` says which answer of the batch each row is of, and `step` how many tokens it has already.
        """
        ...


def likeliest(logits: Tensor, answers: Sequence[int], step: int) -> Tensor:
    """Greedy decoding."""
    return logits.argmax(dim=-1)


class Draws:
    """Chooses tokens with the probabilities that the model gives them: by uniform numbers [answers, tokens]."""

    def __init__(self, uniforms: Tensor):
        self.uniforms = uniforms

    def __call__(self, logits: Tensor, answers: Sequence[int], step: int) -> Tensor:
        # Float64, because the sum of a large vocabulary's probabilities would lose the smallest ones.
        reached = logits.float().softmax(dim=-1).double().cumsum(dim=-1)
        wanted = self.uniforms[list(answers), step].to(reached.device) * reached[:, -1]
        drawn = torch.searchsorted(reached, wanted[:, None], right=True)[:, 0]
        return drawn.clamp(max=logits.shape[-1] - 1)


def with_sureness(logits: Tensor, ids: Tensor) -> Chosen:
    """The tokens `ids` [rows], chosen from logits [rows, vocabulary], and how sure the model was of each."""
    chances = logits.float().softmax(dim=-1)
    return Chosen(ids, chances.gather(1, ids[:, None])[:, 0].log(), torch.special.entr(chances).sum(dim=-1))
