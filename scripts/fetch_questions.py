"""Bring a dataset's rows here, as upstream has them.

Writes one Parquet file with the rows and columns of the bundled file, the local file or the hub
dataset, at its pinned revision.
"""

import json
import shutil

from anchorscope.files import atomic
from anchorscope.logs import configure_logging, log
from anchorscope.raw import read_raw


def fetch_from_disk(source: str, target: str) -> None:
    if source.endswith(".parquet"):
        shutil.copyfile(source, target)
    else:
        read_raw(source).write_parquet(target)
    log.info("took the rows of %s", source)


if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    with atomic(snakemake.output[0]) as target:
        if snakemake.input:
            fetch_from_disk(snakemake.input[0], str(target))
        else:
            from anchorscope.hub_rows import write_rows  # slow to import, and needed only here

            origin = json.loads(snakemake.params.origin)
            rows = write_rows(**origin, target=target)
            log.info("fetched %d rows of %s at %s", rows, origin["repo"], origin["revision"])
