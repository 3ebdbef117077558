"""Ask under which licences the models and datasets of a run stand, where they come from.

Writes one JSON file: the licence of each model and of each dataset, as stated there.
"""

import json

from anchorscope import job
from anchorscope.files.atomic import write_text
from anchorscope.files.identity import read_json
from anchorscope.files.licences import licence_of

job.begin(snakemake.log[0])
manifests = map(read_json, snakemake.input)
sources = {
    "models": {manifest["name"]: manifest["source"] for manifest in manifests},
    "datasets": json.loads(snakemake.params.origins),
}
stated = {kind: {name: licence_of(source) for name, source in each.items()} for kind, each in sources.items()}
write_text(snakemake.output[0], json.dumps(stated, indent=2, sort_keys=True, ensure_ascii=False) + "\n")
