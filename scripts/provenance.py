"""Write down what made a run: its settings, code, models, datasets, libraries, and what its models were computed on.

Writes one JSON file that is the same whenever these are, wherever and whenever the run was made.
"""

import json

from anchorscope import job
from anchorscope.files.atomic import write_text
from anchorscope.files.identity import read_json
from anchorscope.files.run_record import run_record

job.begin(snakemake.log[0])
record = run_record(
    snakemake.input.manifests,
    results=[*snakemake.input.answers, *snakemake.input.activations],
    config=json.loads(snakemake.params.config),
    code=json.loads(snakemake.params.fingerprints),
    datasets=json.loads(snakemake.params.origins),
    licences=read_json(snakemake.input.licences),
)
write_text(snakemake.output[0], json.dumps(record, indent=2, sort_keys=True, ensure_ascii=False) + "\n")
