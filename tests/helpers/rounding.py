"""How far two computations of the same numbers may lie apart, from how they are computed."""

from math import ceil, log

import numpy as np
import torch
from numpy.typing import ArrayLike
from transformers import PreTrainedModel

from anchorscope.detect.detector_file import DetectorProbes
from anchorscope.probe.logistic import CONSTANT, JITTER, TOLERANCE, FittedProbes, class_weights


def assert_same(found: ArrayLike, expected: ArrayLike, rounding: float) -> None:
    """Numbers lie no farther apart than the rounding, and one that were wrong by ten times as much would be noticed."""
    found, expected = (np.asarray(some).astype(np.float64) for some in (found, expected))
    np.testing.assert_allclose(found, expected, rtol=0, atol=rounding)
    found.flat[np.flatnonzero(np.isfinite(found))[-1]] += 10 * rounding
    assert not np.allclose(found, expected, rtol=0, atol=rounding, equal_nan=True)


def of_sums(terms: int, largest: float, dtype: type = np.float64) -> float:
    """Of numbers up to `largest` that are added up, or computed with in as many other steps, in any order."""
    return terms * float(np.finfo(dtype).eps) * largest


def of_a_pass(model: PreTrainedModel, tokens: int, states: torch.Tensor) -> float:
    """Of states after sequences of so many tokens: a matrix library may add up the terms of any sum in any order.

    Each term that is added costs at most the dtype's rounding of the largest number. One after the other, a layer adds
    up the model's width in two norms, in queries, keys and values, and in the MLP's first product; a head's width in
    the scores; the tokens in the softmax and again in what it weighs; all heads in what attention gives; and the MLP's
    inner width.
    """
    config = model.config.get_text_config()
    head = getattr(config, "head_dim", config.hidden_size // config.num_attention_heads)
    heads = config.num_attention_heads * head
    inner = getattr(config, "intermediate_size", 4 * config.hidden_size)
    terms = 4 * config.hidden_size + head + 2 * tokens + heads + inner
    return config.num_hidden_layers * terms * torch.finfo(states.dtype).eps * float(states.abs().max())


def of_logits(probes: FittedProbes, states: torch.Tensor) -> float:
    """Of logits of the same probes [layers, folds] for the same states: sums of as many terms as states are wide."""
    weight, bias = probes.weight.abs(), probes.bias.abs()
    largest = (weight @ states.abs().to(weight).mT + bias[..., None]).max()
    return 2 * (states.shape[-1] + 1) * torch.finfo(weight.dtype).eps * float(largest)


def of_a_score(model: PreTrainedModel, tokens: int, learnt: DetectorProbes, layer: int, states: torch.Tensor) -> float:
    """Of a detector's probability, after sequences of so many tokens, whose states are like these, [examples, width].

    A chance moves by at most a quarter of its logit, which moves with all numbers of a state, and is a sum of them.
    """
    weight = (learnt.weight / learnt.scale)[layer].abs()
    largest = ((states.abs() + learnt.mean[layer].abs()) @ weight).max() + learnt.bias[layer].abs()
    sums = of_sums(states.shape[-1] + 3, float(largest), np.float32)
    return (of_a_pass(model, tokens, states) * float(weight.sum()) + sums) / 4


def of_an_area(logits: np.ndarray, positive: np.ndarray, rounding: float) -> float:
    """Of the area under the curve: pairs of logits that lie no farther apart than both may move can change places."""
    apart = np.abs(logits[positive][:, None] - logits[~positive])
    return float((apart <= 2 * rounding).mean()) + of_sums(len(logits), 1.0)


def of_sureness(model: PreTrainedModel, tokens: int) -> float:
    """Of log probabilities and entropies of tokens, after sequences of so many.

    A log probability is a logit less what all logits come to, and either moves as far as a logit does. An entropy
    weighs them by chances that move as far again, and is at most the logarithm of the vocabulary. What is added up
    over the vocabulary is added pairwise, as numpy and torch do.
    """
    with torch.inference_mode():
        logits = model(torch.arange(min(tokens, model.config.vocab_size))[None]).logits
    most = log(model.config.vocab_size)
    return 2 * of_a_pass(model, tokens, logits) * (1 + most) + of_sums(ceil(most / log(2)), most, np.float32)


def of_a_slope(states: torch.Tensor, weight: torch.Tensor, strength: float) -> float:
    """Of the root mean square slope where a probe ends, for states [examples, width] and their weight [width].

    The solver stops below its tolerance, as it computes slopes. It computes a logit from as many terms as states are
    wide, and a chance moves by at most a quarter of that; then a slope adds up what the examples miss, whose weights
    sum to one, times standardised states.
    """
    examples, width = states.shape
    spread, middle = torch.std_mean(states, dim=0)
    eps = torch.finfo(weight.dtype).eps
    logits = (width + 1) * eps * float((states * weight).abs().max()) / 4
    return stop(strength) + logits + examples * eps * float(((states - middle) / spread).abs().max())


def stop(strength: float, tolerance: float = TOLERANCE) -> float:
    """The root mean square slope below which the solver stops."""
    return tolerance * min(max(strength, 0.1), 1.0)


def of_a_fit(states: torch.Tensor, strengths: torch.Tensor) -> float:
    """Of the logits of probes fitted twice to states [layers, examples, width], with penalties of these strengths.

    Either fit ends where the objective's root mean square slope is below the solver's tolerance. The penalty bends the
    objective by its strength along every weight, so the weights end within slope / strength of the optimum, and a logit
    within that times the length of the standardised state. The intercept bends it by P (1 - P), which is more than the
    weakest strength.
    """
    spread, middle = torch.std_mean(states, dim=1, keepdim=True)
    length = float(((states - middle) / spread).square().sum(2).add(1).max().sqrt())
    slope = stop(float(strengths.min())) * (states.shape[2] + 1) ** 0.5
    return 2 * slope / float(strengths.min()) * length


def of_probes(
    probes: FittedProbes,
    states: torch.Tensor,
    labels: torch.Tensor,
    train: torch.Tensor,
    strengths: torch.Tensor,
    said_of: torch.Tensor | None = None,
    inner: bool = False,
    tolerance: float = TOLERANCE,
) -> float:
    """Of the logits of probes [layers, probes] that were fitted to states [layers, examples, width] in two ways.

    Labels are [examples], or those of each probe; `train` and `strengths` are as in `fit`. The logits are those of the
    states, or of others that are `said_of`.

    Where the slope is s and the curvature H, the logit of z is z H^-1 s away from that of the optimum. A fit ends where
    the slope is the solver's tolerance and what rounding hides. A slope adds up what all examples miss, and the
    penalties of standardised weights, whose scales are sums over all examples, too. It moves with the logits that it is
    computed of, which add up as many terms as states are wide. Those of probes that learn from `inner` products move
    further: by the products' own rounding, and by what is added to keep them regular, each times what an example has
    to do with the weights, which is what it misses by the strength.
    """
    eps, (examples, width) = torch.finfo(probes.weight.dtype).eps, states.shape[1:]
    read = states if said_of is None else said_of
    most = 0.0
    for (layer, number), strength in np.ndenumerate(strengths.double().numpy()):
        inside, own = train[number].double(), (labels if labels.dim() == 1 else labels[number]).double()
        (share,) = class_weights(own, inside[None])
        mean = inside @ states[layer].double() / inside.sum()
        spread = (inside @ (states[layer].double() - mean).square() / inside.sum()).sqrt()
        used = spread > CONSTANT * mean.abs()
        units = [(some[layer].double() - mean)[:, used] / spread[used] for some in (states, read)]
        seen, said = (torch.nn.functional.pad(some, (0, 1), value=1.0) for some in units)
        weight = probes.weight[layer, number].double()
        at = torch.cat([(weight * spread)[used], (weight @ mean + probes.bias[layer, number])[None]])
        chance = (seen @ at).sigmoid()
        missed, bent = share * (chance - own).abs(), share * chance * (1 - chance)
        penalty = torch.full_like(at, strength).index_fill(0, torch.tensor(len(at) - 1), 0.0)
        turned = torch.linalg.solve(seen.mT * bent @ seen + penalty.diag(), said.mT).mT  # [said of, width + 1]
        hidden = examples * eps * (missed @ seen.abs() + penalty * at.abs())
        moved = (width + 1) * eps * (seen.abs() @ at.abs())
        if inner:
            moved += width * (JITTER * missed + (width + examples) * eps * missed.sum()) / strength
        apart = turned.norm(dim=1) * stop(strength, tolerance) * (width + 1) ** 0.5 + turned.abs() @ hidden
        apart += (turned @ seen.mT).abs() @ (bent * moved) + (float(moved.max()) if inner else 0.0)
        most = max(most, float(apart.max()))
    return 2 * most + of_logits(probes, read)


def of_distances(clean: torch.Tensor, states: torch.Tensor) -> float:
    """Of distances of states [layers, examples, width] in units of the clean ones' spreads.

    Both come from products over the width of states less a mean over the examples. What such a product is off, over the
    least spread, is how far a distance moves, and what part of it moves with the spreads. A distance is at most the
    longest state over the least spread.
    """
    mean = clean.mean(1, keepdim=True)
    least = torch.linalg.svdvals(clean - mean).amin() / clean.shape[1] ** 0.5
    longest = float((states - mean).norm(dim=2).max() / least)
    return of_sums(clean.shape[1] + 2 * clean.shape[2], longest**2, np.float32)
