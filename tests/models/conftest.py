"""What the tests of models share."""

from pathlib import Path

import pytest

from small_things import tiny_model


@pytest.fixture
def saved(tmp_path, tokenizer) -> Path:
    """A small Llama in a folder, as a hub would have it."""
    folder = tmp_path / "saved"
    tiny_model("llama", len(tokenizer), layers=2).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
