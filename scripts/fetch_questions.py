"""Fetch a dataset's rows as they were published.

Writes one Parquet file with the rows and columns of the bundled file, the local file or the hub
dataset at its pinned revision.
"""

import json
from pathlib import Path

from anchorscope import job
from anchorscope.files.logs import log
from anchorscope.files.sealed_parquet import provenance
from anchorscope.questions.local_rows import copy_rows

job.begin(snakemake.log[0])
origin = json.loads(snakemake.params.origin)
metadata = provenance(stage="fetch", dataset=snakemake.wildcards.dataset, origin=origin, code=snakemake.params.code)
target = Path(snakemake.output[0])
if snakemake.input:
    copy_rows(snakemake.input[0], target, metadata, sha256=origin["sha256"])
    log.info("took the rows of %s", snakemake.input[0])
else:
    from anchorscope.questions.hub_rows import write_rows  # slow to import, and needed only here

    rows = write_rows(**origin, target=target, metadata=metadata)
    log.info("fetched %d rows of %s at %s", rows, origin["repo"], origin["revision"])
