"""Write down what made a run: its settings, code, models, datasets and libraries.

Writes one JSON file that is the same whenever these are, wherever and whenever the run was made.
"""

import json
import platform
from typing import TYPE_CHECKING

from anchorscope.files.atomic import atomic
from anchorscope.files.identity import read_json
from anchorscope.files.logs import configure_logging
from anchorscope.files.provenance import versions

if TYPE_CHECKING:
    from snakemake.script import snakemake

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    params = snakemake.params
    manifests = [read_json(path) for path in snakemake.input]
    made = {
        "config": json.loads(params.config),
        "code": json.loads(params.fingerprints),
        "models": {manifest["name"]: manifest for manifest in manifests},
        "datasets": json.loads(params.origins),
        "libraries": versions(),
        "python": platform.python_version(),
    }
    with atomic(snakemake.output[0]) as target:
        target.write_text(json.dumps(made, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
