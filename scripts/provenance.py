"""Write down what made a run: its settings, code, models, datasets, libraries, and what its models were computed on.

Writes one JSON file that is the same whenever these are, wherever and whenever the run was made.
"""

import json
import platform
from typing import TYPE_CHECKING

from anchorscope.files.atomic import atomic
from anchorscope.files.identity import canonical_json, read_json
from anchorscope.files.logs import configure_logging
from anchorscope.files.provenance import versions
from anchorscope.files.sealed_parquet import made_from

if TYPE_CHECKING:
    from snakemake.script import snakemake


def computed(paths: list[str]) -> dict[str, list[dict]]:
    """By model, every different dtype, device and number of threads that its jobs computed with, by their own word."""
    found: dict[str, dict[str, dict]] = {}
    for path in paths:
        made = made_from(path)
        found.setdefault(made["model"]["name"], {})[canonical_json(made["computed"])] = made["computed"]
    return {model: [each[text] for text in sorted(each)] for model, each in found.items()}


if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    params = snakemake.params
    files = snakemake.input
    manifests = [read_json(path) for path in files.manifests]
    made = {
        "config": json.loads(params.config),
        "code": json.loads(params.fingerprints),
        "models": {manifest["name"]: manifest for manifest in manifests},
        "computed": computed([*files.answers, *files.activations]),
        "datasets": json.loads(params.origins),
        "libraries": versions(),
        "python": platform.python_version(),
    }
    with atomic(snakemake.output[0]) as target:
        target.write_text(json.dumps(made, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
