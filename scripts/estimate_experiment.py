"""Estimate what one experiment shows of one model on one dataset, with bootstrap intervals, under both groupings.

The table is empty where nothing was probed.
"""

import json
from typing import TYPE_CHECKING

from anchorscope.experiments.estimate import Settings, estimate_experiment
from anchorscope.extract.axes import Headline
from anchorscope.files.frames import read_frame, write_frame
from anchorscope.files.logs import configure_logging
from anchorscope.files.provenance import provenance
from anchorscope.files.sealed_parquet import made_from

if TYPE_CHECKING:
    from snakemake.script import snakemake

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    params, files, names = snakemake.params, snakemake.input, snakemake.wildcards
    probed = made_from(files.delta)
    settings = Settings(
        headline=Headline(**json.loads(params.headline)),
        draws=params.draws,
        seed=params.seed,
    )
    if "not_probed" in probed:
        table = read_frame(files.delta)
    else:
        table = estimate_experiment(names.experiment, dict(files.items()), settings)
    inherited = {key: probed[key] for key in ("model", "path", "not_probed") if key in probed}
    made = {"stage": "estimate_experiment", "experiment": names.experiment, "dataset": names.dataset}
    made |= {"code": params.code, "draws": params.draws, "seed": params.seed, **inherited}
    write_frame(snakemake.output[0], table, provenance(**made))
