"""The slow, obvious way to compute what the library computes fast."""

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from anchorscope.engine.packing import Ragged


@torch.inference_mode()
def plain_states(
    model: PreTrainedModel, ids: list[int], cut: list[int], keep: list[int], layer: int, window: int | None = None
) -> dict[str, Tensor]:
    """Vectors [positions, width] of each component at `layer`, knocked out in layers 0 ... `layer` only, or in the
    last `window` of these.

    One example, no cache, no padding, eager attention; the model makes its own causal mask and a hook
    on each layer's attention sets the cut scores to the smallest number before the softmax.
    """
    assert model.config._attn_implementation == "eager"
    layers = model.get_decoder().layers
    found: dict[str, Tensor] = {}

    def cutting(module, args, kwargs):
        mask = kwargs["attention_mask"].clone()  # [1, 1, tokens, tokens], added to the scores
        for key in cut:
            for query in range(key + 1, len(ids)):
                if query not in cut:
                    mask[0, 0, query, key] = torch.finfo(mask.dtype).min
        return args, {**kwargs, "attention_mask": mask}

    def keeping(name):
        def hook(module, args, output):
            states = output[0] if isinstance(output, tuple) else output
            found[name] = states[0, keep].clone()

        return hook

    block = layers[layer]
    first = 0 if window is None else max(0, layer - window + 1)
    handles = [
        part.self_attn.register_forward_pre_hook(cutting, with_kwargs=True) for part in layers[first : layer + 1]
    ]
    handles += [
        block.register_forward_hook(keeping("resid")),
        block.self_attn.register_forward_hook(keeping("attn")),
        block.mlp.register_forward_hook(keeping("mlp")),
    ]
    model.get_decoder()(input_ids=torch.tensor([ids]), use_cache=False)
    for handle in handles:
        handle.remove()
    return found


@torch.inference_mode()
def plain_reweighted(
    model: PreTrainedModel,
    ids: list[int],
    attentions: list[torch.nn.Module],
    read: torch.nn.Module,
    added: dict[int, float],
    start: int,
) -> Tensor:
    """The output of `read` at the last token, with numbers added to scores of some keys for tokens from `start` on.

    One example, no cache, no padding, eager attention; a hook on each of the `attentions` changes the mask that the
    model adds to its own scores.
    """
    assert model.config._attn_implementation == "eager"
    found = {}

    def shifting(module, args, kwargs):
        mask = kwargs["attention_mask"].clone()  # [1, 1, tokens, tokens]
        for query in range(start, len(ids)):
            for key, number in added.items():
                if key <= query:
                    mask[0, 0, query, key] += number
        return args, {**kwargs, "attention_mask": mask}

    def keep(module, args, output):
        found["state"] = (output[0] if isinstance(output, tuple) else output)[0, -1].clone()

    handles = [part.register_forward_pre_hook(shifting, with_kwargs=True) for part in attentions]
    handles.append(read.register_forward_hook(keep))
    model(input_ids=torch.tensor([ids]), use_cache=False, logits_to_keep=1)
    for handle in handles:
        handle.remove()
    return found["state"]


@torch.inference_mode()
def plain_greedy(model: PreTrainedModel, ids: list[int], stops: Tensor, limit: int) -> list[int]:
    """Greedy continuation, one token at a time, the whole sequence anew each time."""
    new: list[int] = []
    while len(new) < limit:
        output = model(input_ids=torch.tensor([ids + new]), use_cache=False, logits_to_keep=1)
        token = int(output.logits[0, -1].argmax())
        new.append(token)
        if stops[token]:
            break
    return new


@torch.inference_mode()
def plain_sureness(model: PreTrainedModel, ids: list[int], answer: list[int]) -> tuple[list[float], list[float]]:
    """Log probability of each token of an answer, and the entropy where it stands, from one pass over all tokens."""
    logits = model(input_ids=torch.tensor([ids + answer]), use_cache=False).logits[0, len(ids) - 1 : -1]
    chosen, entropies = [], []
    for row, token in zip(logits.double().numpy(), answer, strict=True):
        chances = np.exp(row - row.max()) / np.exp(row - row.max()).sum()
        chosen.append(float(np.log(chances[token])))
        entropies.append(float(-(chances[chances > 0] * np.log(chances[chances > 0])).sum()))
    return chosen, entropies


def plain_saliency(
    model: PreTrainedModel, ids: list[int], start: int, keys: list[int], probe: tuple[Tensor, float], layer: int
) -> float:
    """|weight x gradient| from `keys` to tokens from `start` on, over all heads; the mean over layers 0 ... `layer`.

    One example, no cache, no padding; the model itself hands out the weights of its eager attention. The loss is the
    log loss of the probe's own verdict on the last token's state behind `layer`.
    """
    assert model.config._attn_implementation == "eager"
    found = {}

    def begin(module, args, output):
        return output.requires_grad_()  # so that gradients are kept from here on

    def keep(module, args, output):
        found["state"] = (output[0] if isinstance(output, tuple) else output)[0, -1]

    handles = [
        model.get_input_embeddings().register_forward_hook(begin),
        model.get_decoder().layers[layer].register_forward_hook(keep),
    ]
    weights = model(input_ids=torch.tensor([ids]), use_cache=False, output_attentions=True).attentions
    for handle in handles:
        handle.remove()
    weight, bias = probe
    logit = found["state"] @ weight + bias
    chance = torch.sigmoid(logit)
    loss = -torch.log(chance if logit >= 0 else 1 - chance)
    gradients = torch.autograd.grad(loss, weights[: layer + 1])
    total = 0.0
    for one, gradient in zip(weights, gradients, strict=False):
        for head in range(one.shape[1]):
            for query in range(start, len(ids)):
                for key in keys:
                    total += abs(float(one[0, head, query, key].detach() * gradient[0, head, query, key]))
    return total / (layer + 1)


def plain_attention(
    query: Tensor, keys: Tensor, values: Tensor, ragged: Ragged, scale: float, softcap: float | None = None
) -> Tensor:
    """Of each sequence's queries [queries, heads, width], which are the last of its keys, one at a time in float32."""
    sharers = query.shape[1] // keys.shape[1]
    found = torch.empty_like(query, dtype=torch.float32)
    keys, values = keys.float(), values.float()
    sequences = zip(pairwise(ragged.query_bounds), ragged.key_starts, ragged.key_counts, strict=True)
    for (first, end), start, count in sequences:
        seen = ragged.key_places[start : start + count]
        for number in range(first, end):
            visible = seen[: count - (end - number) + 1]
            for head, one in enumerate(query[number].float()):
                scores = keys[visible, head // sharers] @ one * scale
                scores = scores if softcap is None else softcap * torch.tanh(scores / softcap)
                found[number, head] = scores.softmax(dim=0) @ values[visible, head // sharers]
    return found


def narrowed_dip(sample: np.ndarray) -> float:
    """The dip statistic of one sample, its hulls built point by point and its modal interval narrowed step by step."""
    x = np.sort(np.asarray(sample, np.float64))
    count = len(x)
    low, high, depth = 0, count - 1, 1.0  # depth is twice the dip, in examples
    while x[low] < x[high]:
        below = _hull(x, low, high, convex=True)
        above = _hull(x, low, high, convex=False)
        left, right, distance = _farthest(x, below, above)
        if distance <= depth:
            break
        depth = max(depth, _outside(x, below[below <= left], convex=True), _outside(x, above[above >= right], False))
        if (left, right) == (low, high):
            break
        low, high = left, right
    return depth / (2 * count)


def _hull(x: np.ndarray, low: int, high: int, convex: bool) -> np.ndarray:
    """Indices where the convex minorant (or concave majorant) of the points (x, rank) bends, from `low` to `high`."""
    kept: list[int] = []
    for index in range(low, high + 1):
        while len(kept) > 1:
            before, last = kept[-2], kept[-1]
            first = (last - before) * (x[index] - x[last])
            second = (index - last) * (x[last] - x[before])
            if (first < second) if convex else (first > second):
                break
            kept.pop()
        kept.append(index)
    return np.array(kept)


def _farthest(x: np.ndarray, below: np.ndarray, above: np.ndarray) -> tuple[int, int, float]:
    """Where the majorant is farthest above the minorant: a bend of each with nothing between, and the distance.

    A step of the sample's distribution function is one example high: the minorant passes below its foot.
    """
    at_below = np.interp(x[below], x[above], above) - below + 1
    at_above = above - np.interp(x[above], x[below], below) + 1
    if at_below.max() >= at_above.max():
        place = int(at_below.argmax())
        left = int(below[place])
        later = above[above >= left]
        return left, int(later[0]), float(at_below[place])
    place = int(at_above.argmax())
    right = int(above[place])
    earlier = below[below <= right]
    return int(earlier[-1]), right, float(at_above[place])


def _outside(x: np.ndarray, bends: np.ndarray, convex: bool) -> float:
    """How far the sample's own function is from a hull that passes through `bends`."""
    farthest = 0.0
    for start, end in pairwise(bends):
        inner = np.arange(start, end + 1)
        line = start + (end - start) * (x[inner] - x[start]) / (x[end] - x[start]) if x[end] > x[start] else inner
        gap = inner - line if convex else line - inner
        farthest = max(farthest, float(gap.max()) + 1)
    return farthest


def weighted_mean(weights: np.ndarray, values: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Means [resamples, layers] of `values` [layers, examples] over the examples `inside`, one by one."""
    means = np.full((len(weights), len(values)), np.nan)
    for number, drawn in enumerate(weights):
        for layer, (mask, mine) in enumerate(zip(inside, values, strict=True)):
            if (drawn * mask).any():
                means[number, layer] = np.average(mine, weights=drawn * mask)
    return means


@torch.inference_mode()
def plain_sample(model: PreTrainedModel, ids: list[int], uniforms: list[float], stops: Tensor) -> list[int]:
    """A continuation at temperature 1, the whole sequence anew for each token.

    A token is the first up to which the probabilities, in the order of the vocabulary, sum to more than its number.
    """
    new: list[int] = []
    for number in uniforms:
        output = model(input_ids=torch.tensor([ids + new]), use_cache=False, logits_to_keep=1)
        logits = output.logits[0, -1].double().numpy()
        chances = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
        new.append(int(np.argmax(np.cumsum(chances) > number)))
        if stops[new[-1]]:
            break
    return new
