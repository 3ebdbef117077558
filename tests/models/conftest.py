"""What the tests of models share."""

from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerBase

from small_things import small_tokenizer, tiny_model


@pytest.fixture(scope="session")
def few_tokens() -> PreTrainedTokenizerBase:
    """A tokenizer that is saved and loaded in no time."""
    return small_tokenizer()


@pytest.fixture
def saved(tmp_path, few_tokens) -> Path:
    """A small Llama in a folder, as a hub would have it."""
    folder = tmp_path / "saved"
    tiny_model("llama", len(few_tokens), layers=2).save_pretrained(folder)
    few_tokens.save_pretrained(folder)
    return folder
