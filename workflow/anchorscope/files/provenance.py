"""What made a file: its inputs and settings, and the versions of the libraries."""

import importlib.metadata

from anchorscope.files.identity import canonical_json

VERSIONED = ("torch", "transformers", "tokenizers", "safetensors", "datasets", "pyarrow", "polars", "numpy")


def provenance(**made_from: object) -> dict[str, str]:
    """Parquet metadata that says what made a file: its inputs and settings, and library versions."""
    return {"anchorscope": canonical_json({**made_from, "versions": versions()})}


def versions() -> dict[str, str]:
    """Of the libraries that results can depend on, as far as they are installed."""
    return {name: importlib.metadata.version(name) for name in VERSIONED if _installed(name)}


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
