"""A small model as a GGUF file, written by the format's own library."""

from functools import cache
from pathlib import Path

import gguf
import numpy as np
from transformers import PreTrainedModel

from anchorscope.files.identity import package_file
from anchorscope.models.fetch import SPARE_TOKENIZER

NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def write_gguf(path: Path, model: PreTrainedModel, left_out: str = "nothing") -> Path:
    """A Llama in float32 with SmolLM2's tokenizer; the weights whose name holds `left_out` are not written."""
    writer, config = gguf.GGUFWriter(path, "llama"), model.config
    writer.add_context_length(config.max_position_embeddings)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_vocab_size(config.vocab_size)
    for key, (value, kinds) in _tokenizer().items():
        writer.add_key_value(key, value, kinds[0], sub_type=kinds[-1] if len(kinds) > 1 else None)
    for name, weight in model.state_dict().items():
        if left_out not in name and name != "lm_head.weight":  # tied
            writer.add_tensor(_name(name), _rotated(name, weight.numpy(), model))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@cache
def _tokenizer() -> dict[str, tuple]:
    """What SmolLM2's file says about its tokenizer: each value with its types."""
    fields = gguf.GGUFReader(package_file(*SPARE_TOKENIZER)).fields
    return {key: (field.contents(), field.types) for key, field in fields.items() if key.startswith("tokenizer.")}


def _name(name: str) -> str:
    ends = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    if name in ends:
        return ends[name]
    _, _, layer, part = name.removesuffix(".weight").split(".", 3)
    return f"blk.{layer}.{NAMES[part]}.weight"


def _rotated(name: str, weight: np.ndarray, model: PreTrainedModel) -> np.ndarray:
    """Queries and keys in the order of this format's Llamas, whose rotary pairs are neighbours."""
    heads = {"q_proj": model.config.num_attention_heads, "k_proj": model.config.num_key_value_heads}
    count = next((number for part, number in heads.items() if part in name), None)
    if count is None:
        return weight
    return np.ascontiguousarray(weight.reshape(count, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape))
