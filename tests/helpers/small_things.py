"""Small real things to test on: random models of several families, and the project's own folder."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

ROOT = Path(__file__).resolve().parents[2]
FAMILIES = ("llama", "qwen3", "mistral", "gemma2", "gemma3")
SLIDING = 24  # tokens of sliding attention; fewer than the few-shot prefix has, so that they matter

CHAT = (
    "{% for message in messages %}<u>{{ message.content }}</u>{% endfor %}{% if add_generation_prompt %}<a>{% endif %}"
)


@contextmanager
def one_at_a_time(what: str) -> Iterator[None]:
    """Keep this user's other processes out of the same work while the block runs."""
    with open(Path(tempfile.gettempdir()) / f"anchorscope-{os.getuid()}-{what}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def tiny_model(
    family: str, vocabulary: int, layers: int = 4, attention: str = "sdpa", seed: int = 0
) -> PreTrainedModel:
    """A random float32 model, with weights large enough that attention is far from uniform."""
    shape = {
        "vocab_size": vocabulary,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 512,
        "initializer_range": 0.25,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 2,
        "tie_word_embeddings": True,
    }
    torch.manual_seed(seed)
    if family == "llama":
        model = LlamaForCausalLM(LlamaConfig(**shape))
    elif family == "qwen3":
        model = Qwen3ForCausalLM(Qwen3Config(**shape))
    elif family == "mistral":
        model = MistralForCausalLM(MistralConfig(**shape, sliding_window=SLIDING))
    elif family == "gemma2":  # caps its attention scores
        config = Gemma2Config(**shape, sliding_window=SLIDING, query_pre_attn_scalar=8, attn_logit_softcapping=2.0)
        model = Gemma2ForCausalLM(config)
    else:
        kinds = ["sliding_attention" if layer % 2 == 0 else "full_attention" for layer in range(layers)]
        config = Gemma3TextConfig(**shape, sliding_window=SLIDING, layer_types=kinds, query_pre_attn_scalar=8)
        model = Gemma3ForCausalLM(config)
    model.set_attn_implementation("eager" if family == "gemma2" else attention)  # SDPA has no cap
    return model.float().eval().requires_grad_(False)


def small_tokenizer() -> PreTrainedTokenizerBase:
    """A real tokenizer of a few hundred tokens, which loads in milliseconds."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet)
    tokenizer.train_from_iterator(["Question: who wrote emma\nAnswer: Jane Austen\n"] * 20, trainer)
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    wrapped.chat_template = CHAT
    return wrapped
