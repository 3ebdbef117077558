"""How far two computations of the same numbers may lie apart, from how they are computed."""

import torch
from transformers import PreTrainedModel

from anchorscope.probe.logistic import TOLERANCE, FittedProbes


def of_a_pass(model: PreTrainedModel, tokens: int, states: torch.Tensor) -> float:
    """Of states after sequences of so many tokens: a matrix library may add up the terms of any sum in any order.

    Each term that is added costs at most the dtype's rounding of the largest number. One after the other, a layer adds
    up the model's width in two norms, in queries, keys and values, and in the MLP's first product; a head's width in
    the scores; the tokens in the softmax and again in what it weighs; all heads in what attention gives; and the MLP's
    inner width.
    """
    config = model.config
    heads = config.num_attention_heads * config.head_dim
    terms = 4 * config.hidden_size + config.head_dim + 2 * tokens + heads + config.intermediate_size
    return config.num_hidden_layers * terms * torch.finfo(states.dtype).eps * float(states.abs().max())


def of_logits(probes: FittedProbes, states: torch.Tensor) -> float:
    """Of logits of the same probes [layers, folds] for the same states: sums of as many terms as states are wide."""
    terms = (
        torch.einsum("lfw,lnw->lfn", probes.weight.abs(), states.abs().to(probes.weight)) + probes.bias.abs()[..., None]
    )
    return 2 * (states.shape[-1] + 1) * torch.finfo(probes.weight.dtype).eps * float(terms.max())


def of_a_fit(states: torch.Tensor, strengths: torch.Tensor) -> float:
    """Of the logits of probes fitted twice to states [layers, examples, width], with penalties of these strengths.

    Either fit ends where the objective's root mean square slope is below the solver's tolerance. The penalty bends the
    objective by its strength along every weight, so the weights end within slope / strength of the optimum, and a logit
    within that times the length of the standardised state. The intercept bends it by P (1 - P), which is more than the
    weakest strength.
    """
    spread, middle = torch.std_mean(states, dim=1, keepdim=True)
    length = float(((states - middle) / spread).square().sum(2).add(1).max().sqrt())
    slope = TOLERANCE * (states.shape[2] + 1) ** 0.5
    return 2 * slope / float(strengths.min()) * length
