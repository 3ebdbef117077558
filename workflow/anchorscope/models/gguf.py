"""From a GGUF file to dense safetensors, once."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from anchorscope.files.gguf_reader import FastReader
from anchorscope.models.checks import check_loaded, naming

CHUNK = 2**18  # numbers that a thread makes of packed ones at a time: so many fit into a processor's cache
SHARD = "256MB"  # of a file with weights; several are hashed at a time


def convert_gguf(source: Path, target: Path, threads: int, dtype: torch.dtype) -> None:
    """Convert a GGUF file to dense safetensors, and its tokenizer, in the folder `target`."""
    converting = f"{source} cannot be converted; give a folder with the model's safetensors instead"
    with reading_gguf_fast(threads), ThreadPoolExecutor(1) as beside:
        with naming(converting):
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                source.parent,
                gguf_file=source.name,
                quantization_config=GgufConfig(dequantize=True),
                dtype=dtype,
                output_loading_info=True,
            )
        model, info = loaded
        check_loaded(info, source.name)
        written = beside.submit(model.save_pretrained, target, max_shard_size=SHARD)
        with naming(converting):  # while the weights are written
            tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
        written.result()
        tokenizer.save_pretrained(target)


@contextmanager
def reading_gguf_fast(threads: int = 1) -> Iterator[None]:
    """Let transformers, which takes all it needs from the GGUF library, get faster parts with the same results.

    It reads the whole file for the config, for the weights and for the tokenizer, and makes the table of all tensor
    names again for every module of the model.
    """
    faster = {
        "GGUFReader": cache(FastReader),
        "get_tensor_name_map": cache(gguf.get_tensor_name_map),
        "dequantize": partial(dequantise, threads=threads),
    }
    plain = {name: getattr(gguf, name) for name in faster}
    vars(gguf).update(faster)
    try:
        yield
    finally:
        vars(gguf).update(plain)


def dequantise(packed: np.ndarray, kind: GGMLQuantizationType, threads: int) -> np.ndarray:
    """What the library makes of packed numbers, with several threads that each take longer rows than it does."""
    block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    if packed.dtype != np.uint8:  # not packed
        return gguf.quants.dequantize(packed, kind)
    blocks = packed.reshape(-1, block_bytes)
    dense = np.empty((len(blocks), block), np.float32)
    step = CHUNK // block

    def fill(start: int) -> None:
        part = blocks[start : start + step]
        dense[start : start + step] = gguf.quants.dequantize(part.reshape(1, -1), kind).reshape(-1, block)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(fill, range(0, len(blocks), step)))
    return dense.reshape(*packed.shape[:-1], -1)
