"""Estimate everything that is said about one model on one dataset, with bootstrap intervals.

Writes one table per kind of estimate: the curves (summary), what each comes to (series), whether there
are two kinds of examples (kinds), parts of the examples (strata), forms of questions and answers (forms), how far
wrong labels would move it (label_errors), and the resampled curves. All are empty where nothing was probed.
"""

import os

# Units are estimated side by side; a matrix product that took as many threads again would only wait for them.
os.environ.update(dict.fromkeys(["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"], "1"))

from concurrent.futures import ThreadPoolExecutor

from anchorscope import job
from anchorscope.extract.axes import Headline
from anchorscope.files.frames import read_frame
from anchorscope.probe.written import write_derived
from anchorscope.summarise.pair_tables import label_errors, summary_tables

job.begin(snakemake.log[0])
settings = {"bootstrap_draws": snakemake.params.bootstrap_draws, "seed": snakemake.params.seed}


def estimated() -> list:
    delta, layers, errors = (read_frame(snakemake.input[name]) for name in ("delta", "layers", "label_errors"))
    headline = Headline.from_json(snakemake.params.headline)
    with ThreadPoolExecutor(1) as beside:
        turned = beside.submit(label_errors, errors, delta, layers, headline)
        tables = summary_tables(delta, layers, headline, **settings, threads=snakemake.threads)
    tables["label_errors"] = turned.result()
    return [tables[name] for name in snakemake.output.keys()]  # noqa: SIM118


write_derived(
    snakemake.output,
    snakemake.input.delta,
    estimated,
    {"stage": "estimate", "dataset": snakemake.wildcards.dataset, "code": snakemake.params.code, **settings},
)
