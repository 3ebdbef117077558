"""Bring a model's files here and describe them.

Writes a folder with the model's safetensors and tokenizer (links, unless they had to be converted;
no safetensors where the weights are random) and a manifest of what it is.
"""

import json
from pathlib import Path

from anchorscope.files.atomic import atomic
from anchorscope.files.disk import explaining_full_disk
from anchorscope.files.logs import configure_logging, log
from anchorscope.models.fetch import describe, fetch

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    source = json.loads(snakemake.params.source)
    folder = Path(snakemake.output.folder)
    with explaining_full_disk(folder):
        fetch(source, folder)
    # Not an output: Snakemake removes those before a job, and what is remembered here serves the next one.
    hashes = folder.parent / ".hashes" / f"{folder.name}.json"
    manifest = describe(folder, snakemake.wildcards.model, source, hashes)
    log.info("%(name)s: %(layers)d layers of width %(width)d, %(architecture)s", manifest)
    with atomic(snakemake.output.manifest) as target:
        target.write_text(json.dumps(manifest, indent=2, sort_keys=True) + "\n", encoding="utf-8")
