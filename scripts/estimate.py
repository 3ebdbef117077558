"""Estimate everything that is said of one model on one dataset, with bootstrap intervals.

Writes one table a kind of estimate: the curves (summary), what each comes to (series), whether there
are two kinds of examples (kinds), parts of the examples (strata), and the resampled curves. All are empty
where nothing was probed.
"""

from dataclasses import fields

from anchorscope.extract.axes import Headline
from anchorscope.files.frames import read_frame, write_frame
from anchorscope.files.logs import configure_logging
from anchorscope.files.provenance import provenance
from anchorscope.files.sealed_parquet import made_from
from anchorscope.summarise.estimates import Estimates, estimate

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    params, names = snakemake.params, snakemake.wildcards
    delta, layers = (read_frame(path) for path in (snakemake.input.delta, snakemake.input.layers))
    probed = made_from(snakemake.input.delta)
    tables = [field.name for field in fields(Estimates)]
    if "not_probed" in probed:
        found = Estimates(**dict.fromkeys(tables, delta))
    else:
        headline = Headline(params.component, params.position)
        found = estimate(delta, layers, headline, params.draws, params.seed, snakemake.threads)
    about = provenance(
        **{key: probed[key] for key in ("model", "not_probed") if key in probed},
        stage="estimate",
        dataset=names.dataset,
        draws=params.draws,
        seed=params.seed,
        code=params.code,
    )
    for table in tables:
        write_frame(snakemake.output[table], getattr(found, table), about)
