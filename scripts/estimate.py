"""Estimate everything that is said about one model on one dataset, with bootstrap intervals.

Writes one table per kind of estimate: the curves (summary), what each comes to (series), whether there
are two kinds of examples (kinds), parts of the examples (strata), forms of questions and answers (forms), how far
wrong labels would move it (label_errors), and the resampled curves. All are empty where nothing was probed.
"""

import json
import os
from typing import TYPE_CHECKING

# Units are estimated side by side; a matrix product that took as many threads again would only wait for them.
os.environ.update(dict.fromkeys(["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"], "1"))

from anchorscope.extract.axes import Headline
from anchorscope.files.frames import read_frame, write_frame
from anchorscope.files.logs import configure_logging
from anchorscope.files.provenance import provenance
from anchorscope.files.sealed_parquet import made_from
from anchorscope.summarise.estimates import estimate, no_estimates
from anchorscope.summarise.label_errors import label_errors

if TYPE_CHECKING:
    from snakemake.script import snakemake

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    params, files = snakemake.params, snakemake.input
    delta, layers, probed = read_frame(files.delta), read_frame(files.layers), made_from(files.delta)
    settings = {"draws": params.draws, "seed": params.seed}
    if "not_probed" in probed:
        estimates, moves = no_estimates(delta), delta
    else:
        headline = Headline(**json.loads(params.headline))
        estimates = estimate(delta, layers, headline, **settings, threads=snakemake.threads)
        moves = label_errors(read_frame(files.label_errors), delta, layers, headline)
    inherited = {key: probed[key] for key in ("model", "path", "not_probed") if key in probed}
    made = {"stage": "estimate", "dataset": snakemake.wildcards.dataset, "code": params.code, **settings, **inherited}
    for name, table in (estimates.tables() | {"label_errors": moves}).items():
        write_frame(snakemake.output[name], table, provenance(**made))
