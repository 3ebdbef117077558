"""Write down what made a run: its settings, code, models, datasets and libraries.

Writes one JSON file that is the same whenever these are, wherever and whenever the run was made.
"""

import json
import platform

from anchorscope.files import atomic, read_json, versions
from anchorscope.logs import configure_logging

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
