"""What identifies a file, a folder, a value or the libraries: hashes, canonical JSON and versions."""

import hashlib
import importlib.util
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from anchorscope.files.atomic import atomic

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")
# Libraries that results can depend on.
VERSIONED = ("torch", "transformers", "tokenizers", "safetensors", "datasets", "pyarrow", "polars", "numpy")


def versions() -> dict[str, str]:
    """The versions of the installed libraries that results can depend on."""
    found = {}
    for name in VERSIONED:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def canonical_json(value: object) -> str:
    """The JSON text of a value with sorted keys and no layout: equal values give equal texts."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def hash_of(value: object) -> str:
    """A short hash: equal values have equal ones."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:16]


def seeded_place(seed: object, name: str) -> bytes:
    """Where a name stands in an order that a seed draws, whatever other names there are."""
    return hashlib.sha256(f"{seed}\n{name}".encode()).digest()


def read_json(path: Path | str) -> dict:
    return json.loads(Path(path).read_text(encoding="utf-8"))


def sha256_of_file(path: Path | str) -> str:
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def sha256_of_files(files: list[Path], remembered: Path) -> dict[Path, str]:
    """The hash of each file, several at a time.

    `remembered` is a file that keeps hashes between runs: a file whose path, size, times and inode are unchanged is
    not read again.
    """
    known = _remembered(remembered)
    before = {file: _stamp(file) for file in files}
    new = [file for file in files if known.get(str(file.resolve()), [None])[:-1] != before[file]]
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:  # hashing releases the interpreter's lock
        hashes = dict(zip(new, pool.map(sha256_of_file, new), strict=True))
    hashes |= {file: known[str(file.resolve())][-1] for file in files if file not in hashes}
    if new:
        unchanged = [file for file in files if _stamp(file) == before[file]]  # while it was read
        with suppress(OSError), atomic(remembered) as target:  # the next run then only reads them again
            kept = {str(file.resolve()): [*before[file], hashes[file]] for file in unchanged}
            target.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return hashes


def _stamp(file: Path) -> list[int]:
    """What changes with a file and can be known without reading it."""
    stat = file.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]


def _remembered(path: Path) -> dict[str, list]:
    """By path, a file's stamp followed by its hash; empty if the file that keeps them is damaged."""
    try:
        kept = read_json(path)
    except (OSError, ValueError):
        return {}
    return {
        name: entry
        for name, entry in (kept.items() if isinstance(kept, dict) else ())
        if isinstance(entry, list) and len(entry) == 5 and re.fullmatch("[0-9a-f]{64}", str(entry[-1]))
    }


def package_file(package: str, file: str) -> Path:
    """The path of a file in an installed Python package, which is not imported."""
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (Path(folder) / file).is_file():
            return Path(folder) / file
    raise FileNotFoundError(f"No installed Python package '{package}' has the file '{file}'.")


def gguf_file(source: dict) -> Path | None:
    """The GGUF file that a model's source in the config names; None if it comes in another format."""
    if "gguf" in source:
        return package_file(source["gguf"]["package"], source["gguf"]["file"])
    return Path(source["path"]) if source.get("path", "").endswith(".gguf") else None


def tokenizer_beside(config: Path | str) -> list[Path]:
    """The tokenizer's files in a config's folder; empty without a tokenizer.json."""
    files = [Path(config).with_name(name) for name in TOKENIZER_FILES]
    there = [file for file in files if os.path.lexists(file)]  # a link that leads nowhere is not taken for no file
    return there if files[0] in there else []


def file_identity(file: Path | str) -> list:
    """Size and a hash of both ends: quick for a large file, and the same wherever and whenever it was installed."""
    size = os.path.getsize(file)
    with open(file, "rb") as handle:
        digest = hashlib.sha256(handle.read(2**20))
        handle.seek(max(0, size - 2**20))
        digest.update(handle.read())
    return [size, digest.hexdigest()]


def folder_identity(folder: Path | str) -> list[list]:
    """Names, sizes and times of a folder's files: quick to read, and different once a file has been replaced."""
    files = sorted(path for path in Path(folder).iterdir() if path.is_file())
    return [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files]
