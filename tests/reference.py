"""The slow, obvious way to compute what the engine computes fast."""

import torch
from torch import Tensor
from transformers import PreTrainedModel


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
    model(input_ids=torch.tensor([ids]), use_cache=False)
    for handle in handles:
        handle.remove()
    return found


@torch.inference_mode()
def plain_greedy(model: PreTrainedModel, ids: list[int], stops: Tensor, limit: int) -> list[int]:
    """Greedy continuation, one token at a time, the whole sequence anew each time."""
    new: list[int] = []
    while len(new) < limit:
        token = int(model(input_ids=torch.tensor([ids + new]), use_cache=False).logits[0, -1].argmax())
        new.append(token)
        if stops[token]:
            break
    return new
