"""Train the probes of a model's detector on all examples of all its datasets.

Writes the detector, probes of every layer with what is needed to use them elsewhere, and a card that describes it.
Where no dataset has enough answers to probe, both say so.
"""

import json

from anchorscope.detect.pooled import by_dataset
from anchorscope.detect.train_detector import train_detector
from anchorscope.files.logs import configure_logging
from anchorscope.probe.fitting import begin_fitting

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    params, files, outputs = snakemake.params, snakemake.input, snakemake.output
    fitting = begin_fitting(
        snakemake.threads,
        cards=snakemake.resources.gpu,
        headline=params.headline,
        folds=params.folds,
        seed=params.seed,
        code=params.code,
    )
    train_detector(
        by_dataset(files.activations, json.loads(params.datasets)),
        files.manifest,
        target=outputs.detector,
        card=outputs.card,
        sources=json.loads(params.sources),
        fitting=fitting,
    )
