"""Cross-fit a probe for every layer, component and position, and measure delta P with it.

Writes the delta table, one row an example, layer, component, position and intervention, and the
layers table with each probe's AUC and calibration error.
"""

import torch

from anchorscope.delta import measure
from anchorscope.files import atomic, made_from, provenance
from anchorscope.logs import configure_logging
from anchorscope.memory import give_back_freed_blocks
from anchorscope.store import ActivationReader

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    torch.set_num_threads(snakemake.threads)
    give_back_freed_blocks()
    params, names = snakemake.params, snakemake.wildcards
    where = f"{names.model} on {names.dataset}"
    delta, layers = measure(ActivationReader(list(snakemake.input)), params.folds, params.seed, where)
    model = made_from(snakemake.input[0])["model"]
    about = provenance(stage="probe", model=model, dataset=names.dataset, folds=params.folds, code=params.code)
    for table, output in ((delta, snakemake.output.delta), (layers, snakemake.output.layers)):
        with atomic(output) as target:
            table.write_parquet(target, metadata=about)
