"""Checks that a packed pass computes what the model's own code computes, and refuses a model where it does not."""

import torch
from torch import Tensor
from transformers import PreTrainedModel

from anchorscope.engine.attention import compute_prefix, packed_attention, run_decoder
from anchorscope.engine.packing import Pack, trunk

# Allowed relative difference of the last hidden state. In half precision, two orders of summation differ by up to 6 %.
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.1}


@torch.inference_mode()
def check_packed(model: PreTrainedModel, ids: list[int], shared: int) -> None:
    """Run one sequence both ways and compare its last token, before any other work."""
    plain = _plain(model, ids)
    difference = (_packed(model, ids, shared) - plain).norm() / plain.norm()
    if difference > TOLERANCE[model.dtype]:  # NaN passes here, and is reported where it is stored
        raise ValueError(
            f"{model.config.model_type} models cannot be run: their attention has something that a packed pass "
            f"leaves out (relative difference {difference:.2g} in the last hidden state)."
        )


def _packed(model: PreTrainedModel, ids: list[int], shared: int) -> Tensor:
    with packed_attention(model):
        past = compute_prefix(model, ids[:shared])
        return run_decoder(model, Pack([trunk(range(shared), ids[shared:])], shared), past)[-1].float()


def _plain(model: PreTrainedModel, ids: list[int]) -> Tensor:
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    tokens = torch.tensor([list(ids)], device=model.device)
    states = model.get_decoder()(input_ids=tokens, use_cache=False).last_hidden_state
    model.set_attn_implementation(before)
    return states[0, -1].float()
