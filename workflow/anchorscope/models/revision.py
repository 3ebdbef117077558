"""What fixes a model, the revision of its weights and a hash of its tokenizer, and whether it is still the same."""

import hashlib
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from anchorscope.files.identity import canonical_json, read_json, sha256_of_files
from anchorscope.models.manifest import Manifest


def revision_of(folder: Path, source: dict) -> str:
    """What fixes the weights: the hub's commit, their hash, or a hash of the config and seed they are drawn from."""
    if "hub" in source:
        return source["revision"]
    if "folder" in source:  # used where it lies, and nothing is traced back to it
        return ""
    if "random" in source:
        return _hash_of({"config": read_json(folder / "config.json"), "seed": source["random"]["seed"]})
    found = sha256_of_files(folder.glob("*.safetensors"), remembered=hashes_of(folder))
    return _hash_of({file.name: digest for file, digest in found.items()})


def hashes_of(folder: Path) -> Path:
    """The file that remembers the hashes of a folder's weights, so that unchanged ones are read only once.

    It is not an output: Snakemake deletes those before a job, and the next job needs it.
    """
    return folder.parent / ".hashes" / f"{folder.name}.json"


def tokenizer_hash(tokenizer: PreTrainedTokenizerBase) -> str:
    return _hash_of(tokenizer.backend_tokenizer.to_str())


def check_unchanged(manifest: Manifest) -> None:
    """Refuse weights that changed after they were fetched: results would carry the revision of others."""
    now = revision_of(Path(manifest.path), manifest.source)
    _refuse_change(manifest, "weights", then=manifest.revision, now=now)


def check_unchanged_tokenizer(manifest: Manifest, tokenizer: PreTrainedTokenizerBase) -> None:
    _refuse_change(manifest, "tokenizer", then=manifest.tokenizer, now=tokenizer_hash(tokenizer))


def _refuse_change(manifest: Manifest, what: str, then: str, now: str) -> None:
    if then != now:
        raise ValueError(
            f"The {what} of {manifest.name} changed after it was fetched ({then} then, {now} now); "
            f"run `snakemake --cores 1 --force results/models/{manifest.name}.json` with the same config."
        )


def _hash_of(value: object) -> str:
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:16]
