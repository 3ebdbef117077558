"""From a GGUF file to dense safetensors, once."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from anchorscope.files.faults import reason_of
from anchorscope.models.checks import check_loaded


def convert_gguf(source: Path, target: Path) -> None:
    """Convert a GGUF file to dense float32 safetensors, and its tokenizer, in the folder `target`."""
    try:
        with reading_gguf_once():
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                source.parent,
                gguf_file=source.name,
                quantization_config=GgufConfig(dequantize=True),
                dtype=torch.float32,
                output_loading_info=True,
            )
            tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    except Exception as error:  # whatever its content makes the libraries say
        raise ValueError(
            f"{source} cannot be converted: {reason_of(error)}. Give a folder with the model's safetensors instead."
        ) from error
    model, info = loaded
    check_loaded(info, source.name)
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


@contextmanager
def reading_gguf_once() -> Iterator[None]:
    """Keep what the GGUF library has read while a file is converted, and let it read faster.

    Transformers reads the whole file for the config, for the weights and for the tokenizer. It also makes the table of
    all tensor names again for every module of the model. Together this is most of the time of a conversion.
    """
    from unittest.mock import patch

    import gguf  # only models in this format need it

    class Reader(gguf.GGUFReader):
        """The file as a plain array: a slice of a memory map costs more, and a million are taken."""

        data = property(lambda self: self._plain, lambda self, mapped: setattr(self, "_plain", np.asarray(mapped)))

    with patch.multiple(gguf, GGUFReader=cache(Reader), get_tensor_name_map=cache(gguf.get_tensor_name_map)):
        yield
