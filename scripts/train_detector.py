"""Train the probes of a model's detector on all examples of all its datasets.

Writes the detector, probes of every layer with what is needed to use them elsewhere, and a card that describes it.
Where no dataset has enough answers to probe, both say so.
"""

import json

from anchorscope import job
from anchorscope.detect.train_detector import train_detector
from anchorscope.probe.fitting import begin_fitting
from anchorscope.probe.pooled import by_dataset

job.begin(snakemake.log[0])
train_detector(
    by_dataset(snakemake.input.activations, json.loads(snakemake.params.datasets)),
    snakemake.input.manifest,
    target=snakemake.output.detector,
    card=snakemake.output.card,
    sources=json.loads(snakemake.params.sources),
    fitting=begin_fitting(snakemake.params, snakemake.threads, gpus=snakemake.resources.gpu),
)
