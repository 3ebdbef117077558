"""Write down what made a run: its settings, code, models, datasets, libraries, and what its models were computed on.

Writes one JSON file that is the same whenever these are, wherever and whenever the run was made.
"""

import json

from anchorscope.files.atomic import write_text
from anchorscope.files.logs import configure_logging
from anchorscope.files.run_record import run_record

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    params, files = snakemake.params, snakemake.input
    record = run_record(
        files.manifests,
        results=[*files.answers, *files.activations],
        config=json.loads(params.config),
        code=json.loads(params.fingerprints),
        datasets=json.loads(params.origins),
    )
    write_text(snakemake.output[0], json.dumps(record, indent=2, sort_keys=True, ensure_ascii=False) + "\n")
