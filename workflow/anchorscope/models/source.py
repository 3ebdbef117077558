"""Where a model comes from, and what tells whether it is still the same."""

from collections.abc import Mapping

from anchorscope.files.identity import (
    canonical_json,
    file_identity,
    folder_identity,
    gguf_file,
    sha256_of_file,
    tokenizer_beside,
)


def source_of(model: Mapping) -> dict:
    """Where a model comes from, of all that the config says about it."""
    return {key: model[key] for key in ("hub", "revision", "path", "gguf", "random") if key in model}


def identity_of(source: dict) -> str:
    """What identifies a model: its source and files; for random weights the files' contents, wherever they are."""
    if "random" in source:
        config = source["random"]["config"]
        files = [sha256_of_file(file) for file in [config, *tokenizer_beside(config)]]
        return canonical_json([files, source["random"]["seed"]])
    if gguf := gguf_file(source):
        return canonical_json([source, file_identity(gguf)])
    if "path" in source:
        return canonical_json([source, folder_identity(source["path"])])
    return canonical_json(source)
