"""What made a run: its settings, code, models, datasets, licences, libraries, and what its models were computed on."""

import platform
from collections.abc import Iterable, Mapping
from pathlib import Path

from anchorscope.files.identity import canonical_json, read_json, versions
from anchorscope.files.sealed_parquet import made_from


def run_record(manifests: Iterable[Path | str], results: Iterable[Path | str], **given: Mapping) -> dict:
    """The record of a run, with what is `given` besides; `results` are files that its models computed."""
    return {
        **given,
        "models": {manifest["name"]: manifest for manifest in map(read_json, manifests)},
        "computed": computed(results),
        "libraries": versions(),
        "python": platform.python_version(),
    }


def computed(results: Iterable[Path | str]) -> dict[str, list[dict]]:
    """By model, every different dtype, device and number of threads that its jobs computed with, by their own word."""
    found: dict[str, dict[str, dict]] = {}
    for path in results:
        made = made_from(path)
        found.setdefault(made["model"]["name"], {})[canonical_json(made["computed"])] = made["computed"]
    return {model: [each[text] for text in sorted(each)] for model, each in found.items()}
