"""What a file was made from: inputs, settings and library versions."""

import importlib.metadata

from anchorscope.files.identity import canonical_json

VERSIONED = ("torch", "transformers", "tokenizers", "safetensors", "datasets", "pyarrow", "polars", "numpy")


def provenance(**made_from: object) -> dict[str, str]:
    """Parquet metadata with the inputs, settings and library versions that a file was made from."""
    return {"anchorscope": canonical_json({**made_from, "versions": versions()})}


def versions() -> dict[str, str]:
    """The versions of the installed libraries that results can depend on."""
    return {name: importlib.metadata.version(name) for name in VERSIONED if _installed(name)}


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
