"""Files that are either whole or absent: write beside the target, then rename."""

import hashlib
import importlib.metadata
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VERSIONED = ("torch", "transformers", "tokenizers", "pyarrow", "polars", "numpy")


@contextmanager
def atomic(target: Path | str) -> Iterator[Path]:
    """Yield a temporary path beside `target`; rename it to `target` only if the block succeeds."""
    target = Path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        yield temporary
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def canonical_json(value: object) -> str:
    """The one JSON text of a value: sorted keys, no layout. Equal values give equal texts."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def read_json(path: Path | str) -> dict:
    return json.loads(Path(path).read_text(encoding="utf-8"))


def sha256_of_file(path: Path | str) -> str:
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def provenance(**made_from: object) -> dict[str, str]:
    """Parquet metadata that says what made a file: its inputs and settings, and library versions."""
    versions = {name: importlib.metadata.version(name) for name in VERSIONED if _installed(name)}
    return {"anchorscope": canonical_json({**made_from, "versions": versions})}


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def folder_identity(folder: Path | str) -> list[list]:
    """Names, sizes and times of a folder's files: cheap to ask, and different when a file was replaced."""
    files = sorted(path for path in Path(folder).iterdir() if path.is_file())
    return [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files]
